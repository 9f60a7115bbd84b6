"""First loads that Spark's tasks share: what twice the executors gain, and what sharing costs.

    python -m benchmarks.spread [--millions 20] [--executors 1 2]

A stream of events and a table of 1,000 products lie in the lake; three views are computed from all of them:

    kinds    COUNT, SUM and MAX per category of the product, over a join: parts fold their rows, a hundred groups meet
    users    COUNT and MAX per user: as many groups as a tenth of the events, folded and met
    shown    filter and project: nothing meets

Each line is a process of its own: `one` is a process with one thread and no Spark, the others are clusters of so many
executors with one core each (`local-cluster`). Printed are events a second by the clock, processor seconds of driver,
JVMs and workers, and both as ratios to the first line. The rows must be the same: their digests are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measuring.process_tree import processor_seconds
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions, Spread
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import SparkSettings, load_settings
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.spark import spark_session
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

PIPELINE: Final = "bench"
_MEMORY_MB: Final = 2048
_PER_COMMIT: Final = 5_000_000
_TABLES: Final = """
CREATE TABLE product (id VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'product', PARTITIONS = 1);
CREATE STREAM visit (product VARCHAR, person BIGINT, length INT) WITH (KAFKA_TOPIC = 'visit', PARTITIONS = 1);
"""
_VIEWS: Final = {
    "kinds": "SELECT p.category, COUNT(*) AS n, SUM(v.length) AS total, MAX(v.length) AS longest"
    " FROM visit v JOIN product p ON v.product = p.id GROUP BY p.category",
    "users": "SELECT person, COUNT(*) AS n, MAX(length) AS longest FROM visit GROUP BY person",
    "shown": "SELECT product, length * 2 AS twice FROM visit WHERE length > 900",
}
_EVENTS: Final = {
    "product": "'p' || n AS id, 'c' || (n % 100) AS category, FALSE AS _tombstone",
    "visit": "'p' || (hash(n) % 1000) AS product, (hash(n) % {people})::BIGINT AS person,"
    " (1 + n * 7919 % 1000)::INT AS length",
}
_PLACE: Final = (
    "0::INT AS _partition, n::BIGINT AS _offset, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_milliseconds(n) AS"
    " _timestamp, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_milliseconds(n) AS _stream_time, NULL AS _headers"
)


def make(root: Path, events: int) -> None:
    """A lake with that many visits, and no view computed."""
    settings = load_settings(lake=root)
    lake = LakeLayout(root)
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {select};\n" for name, select in _VIEWS.items())
    list(Interpreter(settings, PIPELINE).run(_TABLES + views))
    catalog = Catalog(lake)
    with DuckDBEngine(f"{_MEMORY_MB}MB", 2) as engine, engine.connection() as connection:
        for name, rows in (("product", 1_000), ("visit", events)):
            source = catalog.get(name)
            assert isinstance(source, Source)
            path = lake.table(event_log(source).name)
            table = DuckDBTable(connection, engine.kept, path, log_spec(source), name)
            head = table.ensure(CommitRecord(epoch=0))
            values = _EVENTS[name].format(people=max(1, events // 10))
            for first in range(0, rows, _PER_COMMIT):
                drawn = f"SELECT {values}, {_PLACE} FROM range({first}, {min(rows, first + _PER_COMMIT)}) AS _(n)"
                head = table.append(connection.sql(drawn).to_arrow_table(), CommitRecord(epoch=head.record.epoch + 1))


def load(root: Path, executors: int) -> dict[str, Any]:
    """Compute the views; what it took.

    Args:
        executors: of one core; 0: this process alone.
    """
    settings, lake = load_settings(lake=root), LakeLayout(root)
    catalog = Catalog(lake)
    levels = maintained(catalog.pipeline(PIPELINE), catalog)
    with ExitStack() as entered:
        engine = entered.enter_context(DuckDBEngine(f"{_MEMORY_MB}MB", 1))
        context = RunContext(None, lake, f"{PIPELINE}/1", duckdb_engine=engine)
        if executors:
            at = SparkSettings(master=f"local-cluster[{executors},1,2048]")
            spark = entered.enter_context(spark_session(at, "strandline-spread"))
            spark.sparkContext.parallelize(range(executors), executors).count()  # the executors are there
            spread = Spread(1, _MEMORY_MB, settings.arrangements_space)
            context = RunContext(
                SparkSessions(lambda: spark), lake, f"{PIPELINE}/1", duckdb_engine=engine, spread=spread
            )
        found: dict[str, Any] = {}
        for level in levels:
            for item in level:
                began, used = time.monotonic(), processor_seconds(_self())
                failures = refresh_all(context, [[item]], frozenset()).failures
                for failure in failures.values():
                    raise failure
                head = reader.head(lake.table(item.target))
                assert head is not None
                found[item.target] = {
                    "seconds": time.monotonic() - began,
                    "processor": processor_seconds(_self()) - used,
                    "digest": head.record.digest,
                    "how": str(head.record.reason),
                }
    return found


def _self() -> int:
    import os

    return os.getpid()


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the lake, load it by each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=20)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--load", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.load:
        print(json.dumps(load(Path(given.load), given.executors[0])))
        return
    events = given.millions * 1_000_000
    print(f"{'view':8} {'by':12} {'events/s':>12} {'ratio':>6} {'processor s':>12} {'ratio':>6}")
    with tempfile.TemporaryDirectory(prefix="strandline-spread-") as folder:
        made = Path(folder) / "made"
        make(made, events)
        found = {each: _loaded(made, Path(folder) / f"by-{each}", each) for each in (0, *given.executors)}
    for view in _VIEWS:
        first = found[0][view]
        for executors, loaded in found.items():
            each = loaded[view]
            assert each["digest"] == first["digest"], f"{view}: other rows by {executors} executors"
            by = f"{executors} executors" if executors else "one"
            speed, work = first["seconds"] / each["seconds"], each["processor"] / first["processor"]
            print(
                f"{view:8} {by:12} {events / each['seconds']:12,.0f} {speed:6.2f} {each['processor']:12.1f} {work:6.2f}"
                f"   {each['how']}"
            )


def _loaded(made: Path, root: Path, executors: int) -> dict[str, Any]:
    import shutil

    shutil.copytree(made, root)
    command = [sys.executable, "-m", "benchmarks.spread", "--load", str(root), "--executors", str(executors)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(root)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
