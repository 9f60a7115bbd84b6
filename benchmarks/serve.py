"""Serving: look-ups over HTTP at a fixed rate, in the process, and by other ways to the same table, in one run.

    python -m benchmarks.serve [ROWS] [RATE] [SECONDS]

The server has a process of its own. The load is open-loop: a request is due at its time whether or not the one before
was answered, and its latency is counted from when it was due. So a stall is seen by all that were due while it lasted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import duckdb
import httpx
import pyarrow as pa
import uvicorn
from deltalake import DeltaTable, QueryBuilder

from jobs.catalog.catalog import Catalog
from jobs.catalog.relations import relation
from jobs.model.settings import Settings, load_settings
from jobs.model.stage_columns import spec_of_input
from jobs.server.access.options import ServerOptions
from jobs.server.app import application
from jobs.session.interpreter import Interpreter
from state_store.commits import CommitRecord
from state_store.delta.commit import Rows
from state_store.delta.staging import stage_rows
from state_store.delta.stored_table import StoredTable
from state_store.digest import Digest, digest_of_table
from state_store.layout import Lake

PORT = 18_088
CONNECTIONS = 32
DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, total DOUBLE, n BIGINT) WITH (KAFKA_TOPIC = 'orders');
    CREATE TABLE bench AS SELECT id, LATEST_BY_OFFSET(customer) AS customer, SUM(total) AS total, SUM(n) AS n
        FROM orders GROUP BY id;
"""
GROUP_BY = "SELECT n % 100 AS g, COUNT(*) AS rows, SUM(total) AS total FROM bench GROUP BY n % 100"
READS = 20_000
COMMITS = 50
SLOW_READS = 20
_LATE_SECONDS = -0.01
"""A generator that is later than that is what is measured, not the server."""


def main() -> None:
    """The table of figures."""
    given = [int(text) for text in sys.argv[1:]]
    rows, rate, seconds = (given + [1_000_000, 3_000, 20][len(given) :])[:3]
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(lake=Path(folder) / "lake")
        _make(settings, rows)
        print(f"{rows:,} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        _others(Lake(settings.lake).table("bench"), rows)
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(settings, Path(folder) / "server"))
        server.start()
        try:
            _until_live()
            _queries()
            _pushed(settings, rows)
            asyncio.run(_load(rows, rate, seconds))
        finally:
            server.terminate()
            server.join()
        _in_process(settings, Path(folder) / "server", rows)


def _make(settings: Settings, rows: int) -> None:
    """The view's table, as one refresh would have left its visible columns."""
    assert list(Interpreter(settings).run(DEFINITIONS))
    keys = list(range(rows))
    Random(1).shuffle(keys)
    _add(settings, keys)


def _add(settings: Settings, keys: list[int]) -> None:
    """One more commit, with these new keys."""
    lake = Lake(settings.lake)
    found = relation("bench", Catalog(lake))
    made = pa.table(
        {"id": keys, "customer": [f"customer {k}" for k in keys], "total": [k * 1.5 for k in keys], "n": keys},
        schema=pa.schema([(name, sql_type.arrow()) for name, sql_type in found.columns]),
    )
    table = StoredTable(lake.table("bench"), spec_of_input(found))
    head = table.ensure(CommitRecord(epoch=0))
    epoch = head.record.epoch + 1
    digest = Digest.parse(head.record.digest) + digest_of_table(made.to_batches())
    record = CommitRecord(epoch=epoch, mode="delta", inserted=len(keys), digest=str(digest))
    table.commit(head, record, Rows(stage_rows(made, table.path, epoch, ("id",))))


def _serve(settings: Settings, folder: Path) -> None:
    app = application(settings, ServerOptions(folder, port=PORT))
    uvicorn.run(app, port=PORT, access_log=False, log_level="warning")


def _until_live() -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as client:
        while True:
            try:
                client.get("/v1/views/bench/rows/1")
                if client.get("/ready").json()["live"] == 1:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)


def _queries() -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as client:
        client.post("/v1/query", json={"sql": GROUP_BY})

        def ask() -> None:
            assert client.post("/v1/query", json={"sql": GROUP_BY}).status_code == 200

        _print("POST /v1/query, GROUP BY over all rows", _each(ask, 10))


def _pushed(settings: Settings, rows: int) -> None:
    """The time from a commit's return to its event at a subscriber over HTTP."""
    taken = []
    address = f"http://127.0.0.1:{PORT}/v1/views/bench/changes?snapshot=false"
    with httpx.stream("GET", address, timeout=60) as events, ThreadPoolExecutor(1) as pool:
        lines = events.iter_lines()

        def arrived() -> float:
            assert any(line == "event: change" for line in lines)
            return time.perf_counter()

        time.sleep(1)
        for number in range(COMMITS):
            arrival = pool.submit(arrived)
            _add(settings, [rows + number])
            committed = time.perf_counter()
            # An event may be there before the commit's call has returned.
            taken.append(max(0.0, arrival.result() - committed))
    _print("commit to event over HTTP", taken)


async def _load(rows: int, rate: int, seconds: int) -> None:
    """Latencies of look-ups that are due `rate` times a second."""
    random = Random(3)
    taken: list[float] = []
    late = 0
    queue: asyncio.Queue[float] = asyncio.Queue()

    async def worker() -> None:
        # By hand: HTTP clients for Python take more of a core than the server that is measured.
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        while True:
            due = await queue.get()
            key = random.randrange(rows)
            writer.write(f"GET /v1/views/bench/rows/{key} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            taken.append(time.perf_counter() - due)
            queue.task_done()

    workers = [asyncio.create_task(worker()) for _ in range(CONNECTIONS)]
    begun = time.perf_counter()
    for number in range(rate * seconds):
        due = begun + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        late += wait < _LATE_SECONDS
        queue.put_nowait(due)
    await queue.join()
    spent = time.perf_counter() - begun
    for each in workers:
        each.cancel()
    share = late / (rate * seconds)
    print(f"HTTP look-ups: {len(taken) / spent:,.0f} a second of {rate:,} asked for; generator late for {share:.1%}")
    _print("HTTP look-up by key", taken)


def _in_process(settings: Settings, folder: Path, rows: int) -> None:
    from state_store.delta import reader
    from state_store.replicas.layout import Layout
    from state_store.replicas.replica import Replica
    from state_store.replicas.rocksdb.store import RocksStore

    table = Lake(settings.lake).table("bench")
    replica = Replica("bench", RocksStore(folder / "replicas" / "bench"), Layout(reader.schema(table), ("id",)))
    keys = Random(2).sample(range(rows), min(READS, rows))
    with replica.reading() as now:
        begun = time.perf_counter()
        for key in keys:
            now.get((key,))
        spent = time.perf_counter() - begun
    replica.close()
    print(f"in process, RocksDB: {len(keys) / spent:,.0f} gets a second")


def _others(table: object, rows: int) -> None:
    """The same look-up without a replica: delta-rs with its own pruning, and DuckDB over the files."""
    random = Random(4)
    opened = DeltaTable(str(table))
    files = opened.file_uris()
    query = QueryBuilder().register("bench", opened)

    def by_delta() -> None:
        found = query.execute(f"SELECT * FROM bench WHERE id = {random.randrange(rows)}").read_all()
        assert found.num_rows == 1

    with duckdb.connect() as db:

        def by_duckdb() -> None:
            assert db.execute("SELECT * FROM read_parquet(?) WHERE id = ?", [files, random.randrange(rows)]).fetchone()

        _print("delta-rs, look-up by key", _each(by_delta, SLOW_READS))
        _print("DuckDB over the files, look-up by key", _each(by_duckdb, SLOW_READS))


def _each(call: Callable[[], None], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return taken


def _print(title: str, taken: list[float]) -> None:
    ordered = sorted(taken)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99))
    print(f"{title}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, of {len(ordered)}")


if __name__ == "__main__":
    main()
