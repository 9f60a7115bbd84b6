"""Load over HTTP from a process of its own: requests that are due at a fixed rate, and what each of them took.

    python -m benchmarks.serving.http_load PORT RATE SECONDS ROWS

The load is open-loop: a request is due at its time whether or not the one before was answered, and its latency is
counted from when it was due. So a stall is seen by all that were due while it lasted. The connections are written by
hand over asyncio's protocols: HTTP clients for Python take more of a core than the server that is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import cast

import uvloop
from starlette.types import Receive, Scope, Send

CONNECTIONS = 32
_LATE_SECONDS = 0.002
"""A generator that wakes later than that is part of what is measured."""
_TICK_SECONDS = 0.001
"""How often requests that are due are sent; their latencies count from when they were due all the same."""
_NOTHING = b'{"row": {"id": 1, "customer": "customer 1", "total": 1.5, "n": 1}, "version": 1, "freshness_ms": 80}'
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


@dataclass(frozen=True)
class Load:
    """What a load took.

    Attributes:
        rate: answers a second.
        late: the share of wake-ups that came later than 2 ms.
        busy: seconds of processor that the generator took, for each second.
        p50, p99, worst: milliseconds from when a request was due to its answer.
    """

    rate: float
    late: float
    busy: float
    p50: float
    p99: float
    worst: float


class _Connection(asyncio.Protocol):
    """One connection with one request under way at most."""

    def __init__(self, answered: Callable[[_Connection, float], None]) -> None:
        self._answered = answered
        self._data = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes, due: float) -> None:
        """Send a request that was due at that time."""
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, ended, body = self._data.partition(_HEAD_END)
        if not ended:
            return
        assert head.startswith(b"HTTP/1.1 200"), head
        if len(body) == int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]):
            self._data = b""
            self._answered(self, self._due)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class _Generator:
    """Requests of random keys, due at a rate."""

    def __init__(self, path: str, rows: int) -> None:
        self._path = path
        self._rows = rows
        self._random = Random(3)
        self._free: deque[_Connection] = deque()
        self._waiting: deque[float] = deque()
        self.taken: list[float] = []

    async def run(self, port: int, rate: int, seconds: int) -> Load:
        """Send all of them, and wait for the last answer."""
        loop = asyncio.get_running_loop()
        connections = []
        for _ in range(CONNECTIONS):
            _, made = await loop.create_connection(lambda: _Connection(self._answered), "127.0.0.1", port)
            connections.append(made)
        self._free.extend(connections)
        used, begun = time.process_time(), time.perf_counter()
        late = wakes = sent = 0
        while sent < rate * seconds:
            wake = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            now = time.perf_counter()
            wakes += 1
            late += now - wake > _TICK_SECONDS + _LATE_SECONDS
            due_now = min(int((now - begun) * rate), rate * seconds)
            self._waiting.extend(begun + number / rate for number in range(sent, due_now))
            sent = due_now
            self._send()
        while len(self.taken) < sent:
            await asyncio.sleep(_TICK_SECONDS)
        spent, busy = time.perf_counter() - begun, time.process_time() - used
        for connection in connections:
            connection.close()
        return _load(self.taken, spent, late / wakes, busy)

    def _answered(self, connection: _Connection, due: float) -> None:
        self.taken.append(time.perf_counter() - due)
        self._free.append(connection)
        self._send()

    def _send(self) -> None:
        while self._free and self._waiting:
            key = self._random.randrange(self._rows)
            request = f"GET {self._path}{key} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
            self._free.popleft().ask(request, self._waiting.popleft())


def _load(taken: list[float], spent: float, late: float, busy: float) -> Load:
    ordered = sorted(each * 1000 for each in taken)
    p50, p99 = (ordered[int((len(ordered) - 1) * share)] for share in (0.5, 0.99))
    return Load(len(ordered) / spent, late, busy / spent, p50, p99, ordered[-1])


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers at once, with as many bytes as a row has."""
    while scope["type"] == "lifespan":
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(_NOTHING))]})
    await send({"type": "http.response.body", "body": _NOTHING})


def put_load(port: int, rate: int, seconds: int, rows: int) -> Load:
    """The same, by a process of its own, on the last core."""
    command = [sys.executable, "-m", "benchmarks.serving.http_load", *map(str, (port, rate, seconds, rows))]
    return Load(**json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def main() -> None:
    """Print the load as JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    port, rate, seconds, rows = map(int, sys.argv[1:5])
    load = uvloop.run(_Generator("/v1/views/bench/rows/", rows).run(port, rate, seconds))
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
