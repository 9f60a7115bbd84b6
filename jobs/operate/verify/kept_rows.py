"""The rows of a view that come from events which are still there, where retention has taken the first of them.

    log       e0 e1 e2 │ e3 e4 e5        what is left
    filtered  r0    r2 │ r3    r5        r3 and r5 must be what its SQL gives over e3 to e5
    newest    b@e1     │ a@e4  c@e5      so must the rows of a and c

It is known of views in which each row comes from one event and carries its place: a filter or projection of a log, and
the newest row of each key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.stage import LatestStage, MapStage, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.delta import reader
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View
    from strandline.jobs.operate.verify.opened import Opened
    from strandline.state_store.commits import Trimmed

_PLACE = ("_partition", "_offset")


def carries_place(definition: Source | View, log: str, catalog: Catalog) -> bool:
    """True if each row of a definition comes from one event of the log, whose place it has."""
    stages = plan(definition, catalog).stages
    alone = len(stages) == 1 and [each.relation.name for each in inputs_of(stages[0])] == [log]
    (stage, *_) = stages
    return alone and (isinstance(stage, LatestStage) or (isinstance(stage, MapStage) and storage_of(stage) == "append"))


def kept_rows(table: Opened, definition: Source | View, trimmed: Trimmed, names: Sequence[str]) -> pa.Table:
    """The stored rows of events that retention has left.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    keyed = isinstance(definition, Source)
    rows = reader.read_rows(table.path, table.version, [*names, STATE] if keyed else [*names, *_PLACE])
    places = [pc.struct_field(rows[STATE], name) if keyed else rows[name] for name in _PLACE]
    begins = {int(partition): offset for partition, offset in trimmed.begins.items()}
    kept = [offset >= begins.get(p, 0) for p, offset in zip(*(each.to_pylist() for each in places), strict=True)]
    return rows.filter(pa.array(kept, pa.bool_())).select(list(names))


def of_keys(computed: pa.Table, stored: pa.Table, definition: Source | View) -> pa.Table:
    """The rows of a keyed source that are computed for keys that are stored; of anything else, all rows.

    Where a producer spreads a key over partitions, the newest of its events may be gone and an older one left.
    """
    import pyarrow as pa

    if not isinstance(definition, Source):
        return computed
    known = {str(row) for row in stored.select(list(definition.key)).to_pylist()}
    wanted = [str(row) in known for row in computed.select(list(definition.key)).to_pylist()]
    return computed.filter(pa.array(wanted, pa.bool_()))
