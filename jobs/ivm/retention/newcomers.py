"""What a definition that is to be computed from history finds of logs that retention has trimmed.

    log        e0 e1 e2 │ e3 e4 e5       trimmed: 3 are gone
    newcomer   computed from e3 on       begins there; where its rule looks back, nothing more goes from the log

What only a stage holds that stands already, and that others share, is not computed again: it begins where that began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.begun_logs import begins
from strandline.jobs.ivm.refresh.context import Heads
from strandline.jobs.ivm.retention.keepers import OwnedStage, keeps_all
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.stage import inputs_of
from strandline.state_store.errors import StoreError
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import InsertQuery, View
    from strandline.state_store.commits import Trimmed
    from strandline.state_store.layout import Lake


def begins_late(definition: View | InsertQuery, catalog: Catalog, lake: Lake) -> tuple[str, ...]:
    """What a definition that is computed from history now will lack: for each trimmed log that it reads, in words,
    where the log begins, and why it keeps what is left.

    Args:
        catalog: has what the definition reads.
    """
    heads = Heads(lake)
    try:
        logs = dict(_trimmed(definition, catalog, heads))
        return tuple(_said(definition, catalog.supposing(definition), logs, heads)) if logs else ()
    except StoreError:
        return ()  # a table that does not read says nothing; the refresh that needs it says why


def _trimmed(definition: View | InsertQuery, catalog: Catalog, heads: Heads) -> Iterator[tuple[str, Trimmed]]:
    for name in definition.inputs:
        source = catalog.find(name)
        log = tables.event_log(source) if isinstance(source, Source) else None
        head = None if log is None else heads.find(log)
        if log is not None and head is not None and head.record.trimmed is not None:
            yield log, head.record.trimmed


def _said(definition: View | InsertQuery, catalog: Catalog, logs: dict[str, Trimmed], heads: Heads) -> Iterator[str]:
    stages = plan(definition, catalog).stages
    computed = [each for each in stages if not tables.is_shared(each.table) or heads.find(each.table) is None]
    for log, trimmed in logs.items():
        over = [each for each in computed if log in {one.relation.name for one in inputs_of(each)}]
        owned = (OwnedStage(definition, each, each is stages[-1]) for each in over)
        why = next(filter(None, (keeps_all(each, log, heads) for each in owned)), "")
        if over:
            yield sentence("{}{}", begins(log, trimmed), sentence(", and takes no more: {}", why) if why else "")
