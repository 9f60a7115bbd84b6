"""Drill: the table is lost, and rebuilt from its changelog alone, to its head and to what it was at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.rollback import midway, readable
from strandline.jobs.operate.drills.scenario import Recovery
from strandline.jobs.operate.verify.reach import reach
from strandline.state_store import changelog
from strandline.state_store.delta import reader
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import VersionGone
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from strandline.jobs.operate.drills.ground import Ground


def rehearse(ground: Ground) -> Recovery:
    """Fold the feed from the oldest version that is readable in full.

    Raises:
        VersionGone: a file that the feed needs is gone, or a version is.
        NegativeWeight, CorruptState: the feed is broken.
    """
    table = ground.table()
    began = time.monotonic()
    start = reach(table)
    if start.fault is not None:
        raise VersionGone(start.fault.what, where=start.fault.where)
    commits = readable(ground.path, start.version)
    # The rows of a version before the view was replaced have not all columns of today.
    base = -1 if start.version < 0 else commits[0].version
    rows = rebuilt(ground.path, base, table.version)
    fault = _fault(ground.path, table.version, rows)
    seconds = time.monotonic() - began
    then = midway(commits).version if len(commits) > 1 else table.version
    fault = fault or _fault(ground.path, then, rebuilt(ground.path, base, then))
    played = f"versions {max(base, 0)} to {table.version} played, and those up to the time of version {then}"
    return Recovery(seconds, rows.num_rows, played, fault)


def rebuilt(path: Path, base: int, upto: int) -> pa.Table:
    """The rows of a version: those of `base` (−1: none), and the changes since."""
    import pyarrow as pa

    changes = reader.read_changes(path, base if base >= 0 else None, upto)
    if base < 0:
        return changelog.fold(changes)
    rows = reader.read_rows(path, base)
    meta = {VERSION: base, TIMESTAMP: None, WEIGHT: 1}
    for name, value in meta.items():
        field = changes.schema.field(name)
        rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
    return changelog.fold(pa.concat_tables([rows.select(changes.column_names), changes]))


def _fault(path: Path, version: int, rows: pa.Table) -> str:
    said = Digest.parse(reader.record_at(path, version).digest)
    found = digest_of_table(rows.to_batches())
    return "" if found == said else f"the feed folds to the digest {found} at version {version}, its record says {said}"
