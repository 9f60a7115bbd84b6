"""Read your writes over HTTP: from an insert to the answer that reflects it, and to the change that a subscriber gets.

    python -m benchmarks.read_your_writes [RATE] [SECONDS]

A pipeline (`strandline run … --mode continuous`, a JVM) and a server (`strandline serve`), each started as a user does.
One process inserts RATE rows a second, open-loop. Beside it a few clients each insert a row of their own, ask for the
row of their key with `at_least` of the position that the insert answered with, and begin again. An answer without the
row, or with an older version than the one before, fails the benchmark. A subscriber notes when each change arrives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np

from benchmarks.measuring.process_tree import processor_seconds
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter

PIPELINE = "writes"
DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'orders');
    CREATE TABLE by_customer AS SELECT customer, COUNT(*) AS orders, SUM(n) AS n FROM orders GROUP BY customer;
"""
PORT = 18_089
CLIENTS = 4
CUSTOMERS = 10_000
INSERTS_PER_SECOND = 20
"""Requests of the load: each has a twentieth of a second's rows, and is one file in the topic."""
WARM_SECONDS = 15.0
"""The first micro-batches start Python workers and compile: they are not the life of a pipeline."""
_PATIENCE_MS = 30_000
_STEPS_PER_SECOND = 4
"""Of a client at the most: it thinks between two of its orders."""


def main() -> None:
    """Print the latencies."""
    given = [int(text) for text in sys.argv[1:]]
    rate, seconds = (given + [1_000, 60][len(given) :])[:2]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        settings = load_settings(lake=Path(folder) / "lake")
        list(Interpreter(settings, PIPELINE).run(DEFINITIONS))
        serve = ("serve", "--listen", f"127.0.0.1:{PORT}", "--folder", str(Path(folder) / "server"))
        running.enter_context(_command(settings.lake, *serve))
        pipeline = running.enter_context(_command(settings.lake, "run", PIPELINE, "--mode", "continuous"))
        bench = Bench(rate)
        bench.load(WARM_SECONDS)
        begun, used = time.perf_counter(), processor_seconds(pipeline.pid)
        bench.measure(seconds)
        spent = (processor_seconds(pipeline.pid) - used) / (time.perf_counter() - begun)
        print(f"{rate:,} rows a second for {seconds} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"processor seconds of the pipeline a second: {spent:.2f}; inserts of the load: {_line(bench.inserts)}")
        print(f"insert to its acknowledgement: {_line(bench.acknowledged)}")
        print(f"insert to the pull that reflects it: {_line(bench.pulled)}")
        print(f"insert to the pushed change: {_line(bench.pushed)}")


class Bench:
    """Clients of a server whose pipeline works."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._sent = 0
        self._begun: dict[tuple[str, int], float] = {}
        self.inserts: list[float] = []
        self.acknowledged: list[float] = []
        self.pulled: list[float] = []
        self.pushed: list[float] = []

    def load(self, seconds: float) -> None:
        """Rows at the rate, until the view reflects the last of them."""
        random = Random(self._sent)
        with _client() as client:
            begun = time.perf_counter()
            position = ""
            for step in range(int(seconds * INSERTS_PER_SECOND)):
                due = begun + step / INSERTS_PER_SECOND
                time.sleep(max(0.0, due - time.perf_counter()))
                numbers = range(self._sent, self._sent + self._rate // INSERTS_PER_SECOND)
                customers = (f"customer {random.randrange(CUSTOMERS)}" for _ in numbers)
                rows = [{"id": n, "customer": each, "n": 1} for n, each in zip(numbers, customers, strict=True)]
                position = _insert(client, rows)
                self.inserts.append(time.perf_counter() - due)
                self._sent += len(rows)
            _pull(client, "customer 0", position)

    def measure(self, seconds: float) -> None:
        """The load, the clients, and the subscriber beside them."""
        self.inserts.clear()
        over, subscribed = threading.Event(), threading.Event()
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            pushes = pool.submit(self._follow, subscribed, over)
            assert subscribed.wait(_PATIENCE_MS / 1000)
            clients = [pool.submit(self._write_and_read, f"client {number}", over) for number in range(CLIENTS)]
            self.load(seconds)
            over.set()
            waiting: list[Future[None]] = [*clients, pushes]
            for each in waiting:
                each.result()

    def _write_and_read(self, customer: str, over: threading.Event) -> None:
        version, orders, random = -1, 0, Random(customer)
        with _client() as client:
            while not over.is_set():
                # Not in step with the epochs, which would show the same part of them each time.
                time.sleep(random.random() * 2 / _STEPS_PER_SECOND)
                orders += 1
                begun = self._begun[customer, orders] = time.perf_counter()
                position = _insert(client, [{"id": -orders, "customer": customer, "n": 1}])
                self.acknowledged.append(time.perf_counter() - begun)
                found = _pull(client, customer, position)
                self.pulled.append(time.perf_counter() - begun)
                assert found["row"]["orders"] == orders, found
                assert found["version"] >= version, found
                version = found["version"]

    def _follow(self, subscribed: threading.Event, over: threading.Event) -> None:
        wanted = {"snapshot": "false", "where": "customer LIKE 'client %'"}
        with _client() as client, client.stream("GET", "/v1/views/by_customer/changes", params=wanted) as events:
            subscribed.set()
            event = ""
            for line in events.iter_lines():
                now = time.perf_counter()
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "change":
                    row = json.loads(value)["row"]
                    self.pushed.append(now - self._begun[row["customer"], row["orders"]])
                if over.is_set() and len(self.pushed) >= len(self._begun):
                    return


def _insert(client: httpx.Client, rows: list[dict[str, object]]) -> str:
    """Insert rows; their position."""
    found = client.post("/v1/streams/orders", json={"rows": rows})
    assert found.status_code == 200, found.text
    return str(found.json()["position"])


def _pull(client: httpx.Client, customer: str, position: str) -> dict[str, Any]:
    """The row of a customer, at least as of the position."""
    terms = {"at_least": position, "wait_ms": str(_PATIENCE_MS)}
    found = client.get(f"/v1/views/by_customer/rows/{customer}", params=terms)
    assert found.status_code == 200, found.text
    return dict(found.json())


def _client() -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=2 * _PATIENCE_MS / 1000)


@contextmanager
def _command(lake: object, *said: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of `strandline`; the end of what it said is shown when the benchmark fails."""
    command = [str(Path(sys.executable).with_name("strandline")), *said]
    with tempfile.TemporaryFile() as output:
        places = os.environ | {"STRANDLINE_LAKE": str(lake)}
        process = subprocess.Popen(command, env=places, stdout=output, stderr=output)
        try:
            if said[0] == "serve":
                _until(_answers, process)
            yield process
        except BaseException:
            output.seek(0)
            print(f"{said[0]}: exit code {process.poll()}\n{output.read()[-2_000:].decode()}", file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not condition():
        assert process.poll() is None
        time.sleep(0.1)


def _answers() -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{PORT}/health").status_code == 200
    except httpx.TransportError:
        return False


def _line(taken: list[float]) -> str:
    p50, p99 = np.quantile(taken, [0.5, 0.99])
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, largest {max(taken):.2f} s, of {len(taken):,}"


if __name__ == "__main__":
    main()
