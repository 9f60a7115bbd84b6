"""Changelog topics: records per second to Kafka and to the lake's own log, and what an epoch pays for a publisher.

    python -m benchmarks.changelog_topic [ROWS]

A view of ROWS groups over a stream of as many events: first published as a whole, then by versions of 20,000 changed
rows each; put back from its topic; and refreshed for 1,000 events at a time, with and without a publisher beside it.
Seconds are those of the clock and, in brackets, of the processor: on a busy machine the second is the one to compare.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from infra.kafka.broker import KafkaBroker
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation_of
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.operate.from_topic import rebuild_from_topic
from strandline.jobs.publish.publisher import open_publisher
from strandline.jobs.publish.topic import published_views
from strandline.jobs.run.publishing import publishing
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, page VARCHAR, seconds BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE MATERIALIZED VIEW by_page WITH (KAFKA_TOPIC = 'by_page', PARTITIONS = 4) AS
        SELECT page, COUNT(*) AS visits, SUM(seconds) AS seconds, MAX(ROWTIME) AS last FROM visits GROUP BY page;
"""
Moment = tuple[float, float]
CHANGED, VERSIONS = 20_000, 10
FEW, EPOCHS = 1_000, 30


class Bench:
    """The lake, its stream and its view."""

    def __init__(self, settings: Settings, duckdb_engine: DuckDBEngine) -> None:
        self.settings, self.lake = settings, LakeLayout(settings.lake)
        assert list(Interpreter(settings).run(DEFINITIONS))
        self.catalog = Catalog(self.lake)
        self._context = RunContext(None, self.lake, f"{DEFAULT_PIPELINE}/1", duckdb_engine=duckdb_engine)
        self._levels = maintained(self.catalog.definitions(), self.catalog)
        source = self.catalog.get("visits")
        assert isinstance(source, Source)
        relation = relation_of(source)
        self._schema = pa.schema([(name, kind.arrow()) for name, kind in relation.columns])
        self._log = StoredTable(self.lake.table("visits"), spec_of_input(relation))
        self._events = 0

    def epoch(self, events: int, groups: int) -> float:
        """Commit events and refresh the view; the seconds of the refresh."""
        first, self._events = self._events, self._events + events
        numbers = pa.array(range(first, self._events), pa.int64())
        at = pc.cast(pc.multiply(pc.add(numbers, 1_700_000_000_000), 1000), pa.timestamp("us", "UTC"))
        pages = pc.binary_join_element_wise("page", pc.cast(pa.array(n % groups for n in range(events)), "string"), "-")
        given = {"id": numbers, "page": pages, "seconds": numbers, "_offset": numbers, "_timestamp": at}
        given |= {"_stream_time": at, "_partition": pa.repeat(pa.scalar(0, pa.int32()), events)}
        columns = [given.get(field.name, pa.nulls(events, field.type)) for field in self._schema]
        rows = pa.table(
            [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)], self._schema
        )
        head = self._log.ensure(CommitRecord(epoch=0))
        digest = Digest.parse(head.record.digest) + digest_of_table(rows.to_batches())
        record = CommitRecord(epoch=head.record.epoch + 1, mode="ingest", inserted=events, digest=str(digest))
        self._log.commit(
            head, record, RowChanges(stage_rows(rows, self._log.path, record.epoch, self._log.spec.indexed))
        )
        began = time.perf_counter()
        failures = refresh_all(self._context, self._levels, frozenset()).failures
        assert not failures, failures
        return time.perf_counter() - began


def main() -> None:
    """The table of figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder, _broker(Path(folder) / "kafka") as servers:
        print(f"{rows:,} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for name, kafka in (("lake's own log", KafkaSettings()), ("Kafka", KafkaSettings(bootstrap_servers=servers))):
            _measure(name, load_settings(lake=Path(folder) / name.replace(" ", "-"), kafka=kafka), rows)


def _measure(name: str, settings: Settings, rows: int) -> None:
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        bench = Bench(settings, duckdb_engine)
        bench.epoch(rows, rows)
        publisher = open_publisher(settings, "by_page")
        began = _moment()
        _rate(f"{name}: the whole view", publisher.catch_up().records, began)
        for _ in range(VERSIONS):
            bench.epoch(CHANGED, CHANGED)
        began = _moment()
        done = publisher.catch_up()
        _rate(f"{name}: {VERSIONS} versions of {CHANGED:,} rows, in {done.writes} writes", done.records, began)
        looks = time.perf_counter()
        for _ in range(20):
            publisher.catch_up()
        print(f"  {name}: a look without news: {(time.perf_counter() - looks) / 20 * 1e3:.1f} ms")
        publisher.close()
        alone = [bench.epoch(FEW, FEW) for _ in range(EPOCHS)]
        with publishing(settings, published_views(bench.catalog.definitions()), lambda _: None, drained=True):
            beside = [bench.epoch(FEW, FEW) for _ in range(EPOCHS)]
        medians = [statistics.median(each) * 1e3 for each in (alone, beside)]
        print(
            f"  {name}: an epoch of {FEW:,} events: alone {medians[0]:.0f} ms, beside a publisher {medians[1]:.0f} ms"
        )
        began = _moment()
        _rate(f"{name}: the table back from the topic", rebuild_from_topic(settings, "by_page").rows, began)


def _rate(what: str, records: int, began: Moment) -> None:
    seconds, of_processor = (now - then for now, then in zip(_moment(), began, strict=True))
    rates = f"{records / seconds:,.0f}/s [{records / of_processor:,.0f}/s]"
    print(f"  {what}: {records:,} in {seconds:.1f} s [{of_processor:.1f} s], {rates}", flush=True)


def _moment() -> Moment:
    """Now, by the clock and by the processor's time of this process, in seconds."""
    return time.perf_counter(), time.process_time()


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    broker = KafkaBroker(folder)
    broker.start()
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
