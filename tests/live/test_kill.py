"""A driver killed anywhere loses nothing and doubles nothing: real broker, real SIGKILL.

Events with unique ids, one in a thousand broken. The driver is killed before it commits a part of what it takes in
itself, while the next one is read, inside a refresh by DuckDB and after the
commit of one by Spark's plans, in `make nightly` also before and after the event log's commit; then the checkpoint is
deleted, and in the last run workers die inside their tasks. Each run goes on where the lake says, in epochs of 20,000
so that every kill falls into the middle of the work. The same kills by DuckDB, many times over, are in
tests/unit/run/test_kills.py.
Then every projection must equal DuckDB's answer over the event log; log and dead letters together must be the topic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from infra.kafka.broker import KafkaBroker
from strandline.state_store.delta import reader
from strandline.state_store.files import discard_folder
from strandline.state_store.layout import LakeLayout
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.waiting import PATIENCE_SECONDS

EVENTS = 80_000 if AT_LENGTH else 60_000
BROKEN_EVERY = 1_000

PIPELINE = f"""
CREATE STREAM sales (region VARCHAR KEY, id BIGINT, product VARCHAR, amount DECIMAL(12, 2), qty INT, price DOUBLE)
  WITH (KAFKA_TOPIC = 'sales', VALUE_FORMAT = 'JSON', PARTITIONS = 4);
CREATE TABLE by_region AS
  SELECT region, COUNT(*) AS n, SUM(amount) AS total, AVG(qty) AS mean FROM sales GROUP BY region;
CREATE TABLE by_product AS
  SELECT product, LATEST_BY_OFFSET(id) AS last_id, MAX(price) AS top, MIN(qty) AS least FROM sales GROUP BY product;
CREATE TABLE busy AS SELECT product, COUNT(*) AS n FROM sales GROUP BY product HAVING COUNT(*) > {EVENTS // 211 - 3};
CREATE STREAM large AS SELECT id, region, amount FROM sales WHERE qty > 3;
CREATE TABLE regions_of_size AS
  SELECT n > {EVENTS // 25} AS big, SUM(n) AS events FROM by_region GROUP BY n > {EVENTS // 25};
"""

# Where the driver is killed, and what refreshes the views meanwhile.
KILLS = [
    ("before-log-commit:3", {"STRANDLINE_INGEST__DRIVER_ROWS": "1000"}),
    ("inside-refresh:7", {"STRANDLINE_KERNEL": "driver"}),
    ("after-refresh-commit:4", {"STRANDLINE_ENGINE": "spark"}),
]
if AT_LENGTH:
    # What is behind is refreshed before the last one.
    KILLS = [("after-log-commit:2", {"STRANDLINE_ENGINE": "spark"}), *KILLS, ("before-log-commit:1", {})]


def _event(number: int) -> tuple[bytes, bytes]:
    region = f"r{number * 7919 % 23}"
    if number % BROKEN_EVERY == 17:
        return region.encode(), [b"{broken", b"[1, 2]", b'{"id": "x"}', b"\xff\xfe"][number // BROKEN_EVERY % 4]
    body = {
        "ID": number,
        "Product": f"p{number * 31 % 211}",
        "amount": f"{number % 10_007}.{number % 100:02d}",
        "qty": number % 11,
        "price": number % 997 / 8,
    }
    return region.encode(), json.dumps(body).encode()


def _strandline(folder: Path, env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("strandline")), *args]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.kafka
@pytest.mark.kill
def test_a_killed_driver_loses_and_doubles_nothing(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Property of the module's docstring; one kill at each place between two commits."""
    lake = LakeLayout(tmp_path / "lake")
    (tmp_path / "shop.sql").write_text(PIPELINE)
    env = os.environ | {
        "STRANDLINE_LAKE": str(lake.root),
        "STRANDLINE_KAFKA__BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers,
        "STRANDLINE_INGEST__MAX_ROWS_PER_EPOCH": "20000",
        "STRANDLINE_INGEST__DRIVER_ROWS": "0",  # Spark takes in what comes, however small
        "STRANDLINE_SPARK__MASTER": "local[2]",
    }
    applied = _strandline(tmp_path, env, "apply", "shop.sql")
    assert applied.returncode == 0, applied.stderr
    kafka_broker.produce("sales", (_event(n) for n in range(EVENTS)))

    for failpoint, engine in KILLS:
        interrupted = env | engine | {"STRANDLINE_FAILPOINT": failpoint}
        killed = _strandline(tmp_path, interrupted, "run", "shop", "--mode", "drain")
        assert killed.returncode == -9, f"{failpoint}: exit {killed.returncode}\n{killed.stderr[-3000:]}"
    # A run that dies before its query has begun leaves none.
    discard_folder(on_disk(lake.checkpoint("shop")))
    # In Spark's tasks it is a worker that dies, again and again, and Spark that runs its task once more.
    in_tasks = env | {"STRANDLINE_FAILPOINT": "inside-refresh:5", "STRANDLINE_SPARK__MASTER": "local[2,4]"}
    finished = _strandline(tmp_path, in_tasks, "run", "shop", "--mode", "drain")
    assert finished.returncode == 0, finished.stderr[-3000:]

    broken = {n for n in range(EVENTS) if n % BROKEN_EVERY == 17}
    ids = Counter(reader.read_rows(lake.table("sales"), columns=["id"])["id"].to_pylist())
    lost = set(range(EVENTS)) - broken - set(ids)
    doubled = {i for i, n in ids.items() if n > 1}
    assert (lost, doubled) == (set(), set())
    dead = reader.read_rows(lake.table("sales__dead_letters"), columns=["_partition", "_offset", "reason"])
    assert dead.num_rows == len(broken)
    assert all(dead["reason"].to_pylist())
    places = reader.read_rows(lake.table("sales"), columns=["_partition", "_offset"])
    assert_dense(places, dead, EVENTS)
    assert_correct(lake, "shop")


def assert_dense(log: object, dead: object, total: int) -> None:
    """Log and dead letters together are the topic: every offset of every partition once."""
    with duckdb.connect() as db:
        db.register("log", log)
        db.register("dead", dead)
        places = "SELECT _partition, _offset FROM log UNION ALL SELECT _partition, _offset FROM dead"
        counted = db.sql(f"SELECT COUNT(*), COUNT(DISTINCT (_partition, _offset)) FROM ({places})").fetchall()
        gaps = db.sql(
            f"SELECT _partition FROM ({places}) GROUP BY _partition HAVING MAX(_offset) + 1 <> COUNT(*)"
        ).fetchall()
    assert counted == [(total, total)]
    assert gaps == []
