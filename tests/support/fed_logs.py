"""The event logs of `tests.support.orders`, filled without Spark as ingest fills them: topic first, then the log."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.tables import META_COLUMNS, TOMBSTONE
from strandline.jobs.model.types import BOOLEAN
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from tests.support.arrow_table import ArrowTable
from tests.support.orders import customer, order

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.ingest.logs.log import Record
    from strandline.state_store.layout import LakeLayout


class FedLogs:
    """Both event logs of one lake, and their topics."""

    def __init__(self, lake: LakeLayout) -> None:
        self._log = LocalLog(lake)
        self._events: dict[str, tuple[Callable[[int], Record], str]] = {}
        self._tables: dict[str, ArrowTable] = {}
        catalog = Catalog(lake)
        for name, event, key in (("orders", order, "customer"), ("customers", customer, "customer")):
            source = catalog.get(name)
            assert isinstance(source, Source)
            self._events[source.topic] = (event, key)
            self._tables[source.topic] = ArrowTable(
                lake.table(log_spec(source).name), _schema(source), log_spec(source)
            )

    def feed(self, numbers: range) -> None:
        """The events of these numbers, in one commit of each log."""
        for topic, (event, key) in self._events.items():
            records = [event(number) for number in numbers]
            places = self._log.produce(topic, records)
            rows = []
            for record, (partition, offset) in zip(records, places, strict=True):
                at = dt.datetime.fromtimestamp(record.timestamp_ms / 1000, dt.UTC)
                place = {"_partition": partition, "_offset": offset, "_timestamp": at, "_stream_time": at}
                value = json.loads(record.value) if record.value is not None else {}
                rows.append({**value, key: (record.key or b"").decode(), **place, TOMBSTONE: record.value is None})
            self._append(topic, rows, places)

    def _append(self, topic: str, rows: list[dict[str, object]], places: list[tuple[int, int]]) -> None:
        table = self._tables[topic]
        head = reader.head(table.path) or table.create(CommitRecord(epoch=0, writer="fed/1"))
        offsets = defaultdict(int, head.record.offsets.get(topic, {}))
        for partition, offset in places:
            offsets[str(partition)] = max(offsets[str(partition)], offset + 1)
        record = replace(
            head.record,
            epoch=head.record.epoch + 1,
            mode="ingest",
            offsets={topic: dict(offsets)},
            topics={topic: self._log.identity(topic).id},
        )
        known = [{name: row.get(name) for name in table.schema.names} for row in rows]
        table.apply(known, None, record)


def _schema(source: Source) -> pa.Schema:
    columns = [(column.name, column.type.arrow()) for column in source.columns]
    columns += [(name, kind.arrow()) for name, kind in META_COLUMNS]
    return pa.schema([*columns, (TOMBSTONE, BOOLEAN.arrow())] if source.kind == "table" else columns)
