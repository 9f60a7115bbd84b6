"""Serving: look-ups over HTTP at a fixed rate, in the process, and by other ways to the same table, in one run.

    python -m benchmarks.serve [ROWS] [RATE] [SECONDS]

The server has a process and a core of its own, the load (`benchmarks.serving.http_load`) as well. The same load goes to
an application that answers at once: so much is HTTP itself. The first lines say how fast the machine is.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pyarrow as pa
import uvicorn

from benchmarks.measuring.process_tree import processor_seconds
from benchmarks.serving.http_load import nothing, put_load
from benchmarks.serving.other_lookups import lookups
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.layout import LakeLayout
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore

PORT = 18_088
DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, total DOUBLE, n BIGINT) WITH (KAFKA_TOPIC = 'orders');
    CREATE TABLE bench AS SELECT id, LATEST_BY_OFFSET(customer) AS customer, SUM(total) AS total, SUM(n) AS n
        FROM orders GROUP BY id;
"""
GROUP_BY = "SELECT n % 100 AS g, COUNT(*) AS rows, SUM(total) AS total FROM bench GROUP BY n % 100"
READS, PASSES = 20_000, 5
COMMITS = 50
SLOW_READS = 20
_ADDITIONS = 10_000_000


def main() -> None:
    """The table of figures."""
    given = [int(text) for text in sys.argv[1:]]
    rows, rate, seconds = (given + [1_000_000, 3_000, 20][len(given) :])[:3]
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(lake=Path(folder) / "lake")
        make_view(settings, rows)
        print(f"{rows:,} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"calibration: {_ADDITIONS:,} additions in {_seconds(_add_up):.2f} s")
        for by, look_up in lookups(LakeLayout(settings.lake).table("bench"), rows):
            _print(f"{by}, look-up by key", _each(look_up, SLOW_READS))
        with _process(_serve_nothing) as nothing:
            _load("an application that answers at once", nothing, rows, rate, seconds)
        with _process(_serve, settings, Path(folder) / "server") as server:
            _until_live()
            _queries()
            _pushed(settings, rows)
            _load("HTTP look-up by key", server, rows, rate, seconds)
        _in_process(settings, Path(folder) / "server", rows)


def make_view(settings: Settings, rows: int) -> None:
    """The view's table, as one refresh would have left its visible columns."""
    assert list(Interpreter(settings).run(DEFINITIONS))
    keys = list(range(rows))
    Random(1).shuffle(keys)
    _add(settings, keys)


def _add(settings: Settings, keys: list[int]) -> None:
    """One more commit, with these new keys."""
    lake = LakeLayout(settings.lake)
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
    table.commit(head, record, RowChanges(stage_rows(made, table.path, epoch, ("id",))))


def _serve(settings: Settings, folder: Path) -> None:
    app = application(settings, ServerOptions(folder, port=PORT))
    uvicorn.run(app, port=PORT, access_log=False, log_level="warning", proxy_headers=False, server_header=False)


def _serve_nothing() -> None:
    uvicorn.run(nothing, port=PORT, access_log=False, log_level="warning", proxy_headers=False, server_header=False)


@contextmanager
def _process(target: Callable[..., None], *args: object) -> Iterator[BaseProcess]:
    """A process that listens, for the duration of the block."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    try:
        while not _is_open():
            assert process.is_alive()
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.join()


def _is_open() -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", PORT)) == 0


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


def _load(title: str, server: BaseProcess, rows: int, rate: int, seconds: int) -> None:
    """A load on the first core, where the event loop of the server has nothing beside it but the rest of the server."""
    assert server.pid is not None
    os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
    used = processor_seconds(server.pid)
    found = put_load(PORT, rate, seconds, rows)
    each = (processor_seconds(server.pid) - used) / (rate * seconds) * 1e6
    print(
        f"{title}: {found.rate:,.0f} a second of {rate:,} asked for, p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms, "
        f"{each:.0f} µs of processor each; the generator was busy for {found.busy:.0%}, late for {found.late:.1%}"
    )


def _in_process(settings: Settings, folder: Path, rows: int) -> None:
    """Rows by key without HTTP: from RocksDB, as the server had it, and from memory."""
    table = LakeLayout(settings.lake).table("bench")
    layout = Layout(reader.schema(table), ("id",))
    keys = [(key,) for key in Random(2).sample(range(rows), min(READS, rows))]
    for title, store in (("RocksDB", RocksStore(folder / "replicas" / "bench")), ("memory", MemoryStore())):
        replica = Replica("bench", store, layout)
        Follower(table, replica, "bench-in-process").catch_up()
        stored = [layout.keys.of_values(key) for key in keys]
        # The first pass brings the blocks into the cache; a later one may meet other work.
        rate = len(keys) / min(_seconds(partial(_ask, replica.get, keys)) for _ in range(PASSES))
        of_bytes = len(keys) / min(_seconds(partial(_ask, store.point, stored)) for _ in range(PASSES))
        replica.close()
        print(f"in process, {title}: {rate:,.0f} gets a second; of bytes, without key and row: {of_bytes:,.0f}")


def _ask(get: Callable[[Any], object], keys: Sequence[object]) -> None:
    for key in keys:
        get(key)


def _add_up() -> None:
    total = 0
    for number in range(_ADDITIONS):
        total += number


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _each(call: Callable[[], None], times: int) -> list[float]:
    return [_seconds(call) for _ in range(times)]


def _print(title: str, taken: list[float]) -> None:
    ordered = sorted(taken)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99))
    print(f"{title}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, of {len(ordered)}")


if __name__ == "__main__":
    main()
