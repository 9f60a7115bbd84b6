"""The cost of an event log, and what retention has taken from it: known from its table's log, no row is read."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.operate.verify.findings import sized
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import StoreError
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.model.settings import Settings
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.snapshot import Snapshot

_TIME = "_timestamp"


@dataclass(frozen=True)
class LogCost:
    """What an event log keeps.

    Attributes:
        size: the bytes of its data files.
        oldest: the smallest timestamp of its events, to the millisecond; None: it has no events, or its files do not
            tell.
        gone: the events that retention has taken so far.
    """

    table: str
    rows: int
    size: int
    oldest: datetime | None
    gone: int = 0

    def __str__(self) -> str:
        since = f", the oldest event of {self.oldest:%Y-%m-%d %H:%M:%S} UTC" if self.oldest is not None else ""
        gone = f"; {self.gone:,} rows before are gone by its retention" if self.gone else ""
        return f"{self.rows:,} rows, {sized(self.size)}{since}{gone}"

    def as_json(self) -> dict[str, Any]:
        """The cost as values of JSON."""
        oldest = self.oldest.isoformat() if self.oldest is not None else None
        return {"log": self.table, "rows": self.rows, "bytes": self.size, "oldest_event": oldest, "gone": self.gone}


def log_cost(table: str, record: CommitRecord, snapshot: Snapshot) -> LogCost:
    """The cost of one event log.

    Args:
        record: of that version.
    """
    files = snapshot.files.values()
    times = [_oldest(body) for body in files]
    known = [each for each in times if each is not None]
    oldest = min(known) if known and len(known) == len(times) else None
    return LogCost(table, record.rows, sum(int(body["size"]) for body in files), oldest, record.gone)


def log_costs(settings: Settings) -> list[LogCost]:
    """The costs of a lake's event logs, in the order of pipelines. One that is not there yet, or broken, is left out.

    Raises:
        CorruptState: the catalog does not read.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    sources = [each for name in catalog.pipelines() for each in catalog.pipeline(name) if isinstance(each, Source)]
    found = []
    for table in map(tables.event_log, sources):
        with suppress(StoreError):
            head = reader.head(lake.table(table))
            if head is not None:
                found.append(log_cost(table, head.record, read_snapshot(lake.table(table), head.version)))
    return found


def _oldest(body: Mapping[str, Any]) -> datetime | None:
    """The smallest timestamp of a data file, by its statistics."""
    with suppress(KeyError, TypeError, ValueError):
        return datetime.fromisoformat(json.loads(body["stats"])["minValues"][_TIME])
    return None
