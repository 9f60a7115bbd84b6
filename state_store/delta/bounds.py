"""The bounds of a table's times, by the statistics of its files: what can be told of them without reading rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.statistics import row_count

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

_MOST_READ: Final = 8
"""Files that are read for one column; those beyond are taken not to hold what is counted."""


def smallest(path: LakePath, column: str, version: int) -> dt.datetime | None:
    """The smallest time of a TIMESTAMP column, down to the millisecond; None where a file does not say.

    Raises:
        VersionGone, CorruptState: the version cannot be read.
    """
    lows = [_bounds(body, column)[0] for body in read_snapshot(path, version).files.values() if row_count(body)]
    known = [low for low in lows if low is not None]
    return dt.datetime.fromisoformat(min(known)) if known and len(known) == len(lows) else None


def rows_before(path: LakePath, column: str, instant: dt.datetime, version: int) -> int:
    """The number of rows whose TIMESTAMP is before an instant of whole milliseconds, or fewer: at most a few files are
    read, and by their statistics all others are known.

    Raises:
        VersionGone, CorruptState: the version, or a file that is read, cannot be.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from strandline.state_store.delta.rows import Wanted, rows_of
    from strandline.state_store.delta.schema import arrow_schema

    snapshot = read_snapshot(path, version)
    before, mixed = 0, dict[str, Mapping[str, Any]]()
    limit = f"{instant.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    for name, body in snapshot.files.items():
        low, high = _bounds(body, column)
        if low is None or high is None or low >= limit:
            continue
        if high < limit and not body.get("deletionVector"):
            before += row_count(body)
        elif len(mixed) < _MOST_READ:
            mixed[name] = body
    wanted = Wanted(arrow_schema(snapshot.metadata["schemaString"]), (column,), {})
    for batch in rows_of(path, replace(snapshot, files=mixed), wanted):
        before += pc.sum(pc.less(batch.column(0), pa.scalar(instant, batch.column(0).type))).as_py() or 0
    return before


def _bounds(body: Mapping[str, Any], column: str) -> tuple[str | None, str | None]:
    """The smallest and the largest time, as the log has them: text of one form, which compares as times do."""
    stats = json.loads(body.get("stats") or "{}")
    return stats.get("minValues", {}).get(column), stats.get("maxValues", {}).get(column)
