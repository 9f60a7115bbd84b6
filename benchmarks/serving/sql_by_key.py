"""SELECTs over HTTP, ksqlDB's route and PostgreSQL's protocol, from processes of their own, closed-loop.

    python -m benchmarks.serving.sql_by_key [ROWS] [SECONDS]

By key: what a replica answers. Then what a query process answers: a GROUP BY over all rows, and 10,000 rows out. Each
client asks again as soon as it has its answer; the server has the first core, the clients the last one. The figures of
a surface are answers a second of all clients, p50 and p99 of one answer, and the server's processor time for each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import httpx

from benchmarks.measuring.process_tree import processor_seconds
from benchmarks.serve import make_view
from infra.ports import free_port
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.server.app import listen
from strandline.jobs.server.state.access import ServerOptions

CLIENTS = (1, 8)
GROUP_BY = "SELECT n % 100 AS g, COUNT(*) AS rows FROM bench GROUP BY n % 100"
TEN_THOUSAND = "SELECT * FROM bench WHERE n < 10000"
Ask = Callable[[int], None]


@dataclass(frozen=True)
class Surface:
    """A way to ask: what it is called, and what makes a client that asks for a key."""

    title: str
    client: Callable[[], Ask]


def main() -> None:
    """The table of figures."""
    rows, seconds = ([int(text) for text in sys.argv[1:]] + [100_000, 5][len(sys.argv) - 1 :])[:2]
    http, postgres = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(lake=Path(folder) / "lake")
        make_view(settings, rows)
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(settings, Path(folder) / "server", http, postgres)
        )
        process.start()
        assert process.pid is not None
        try:
            _until_live(http)
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
            print(f"{rows:,} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            for surface in _by_key(http, postgres):
                for clients in CLIENTS:
                    _measure(surface, clients, process.pid, rows, seconds)
            for surface in _others(http, postgres):
                _measure(surface, 2, process.pid, rows, seconds)
        finally:
            process.terminate()
            process.join()


def _by_key(http: int, postgres: int) -> list[Surface]:
    def body(member: str, text: str) -> Callable[[int], bytes]:
        return lambda key: json.dumps({member: text.format(key)}).encode()

    text = "SELECT * FROM bench WHERE id = {}"
    return [
        Surface("GET /v1/views/bench/rows/KEY", partial(_http, http, "GET", "/v1/views/bench/rows/{}", None)),
        Surface("POST /v1/query", partial(_http, http, "POST", "/v1/query", body("sql", text))),
        Surface("POST /query", partial(_http, http, "POST", "/query", body("ksql", text + ";"))),
        Surface("psql, simple protocol", partial(_simple, postgres, text)),
        Surface("psql, prepared", partial(_prepared, postgres, "SELECT * FROM bench WHERE id = $1")),
    ]


def _others(http: int, postgres: int) -> list[Surface]:
    def constant(text: str) -> Callable[[int], bytes]:
        return lambda _: json.dumps({"sql": text}).encode()

    return [
        Surface("POST /v1/query, GROUP BY", partial(_http, http, "POST", "/v1/query", constant(GROUP_BY))),
        Surface("POST /v1/query, 10,000 rows", partial(_http, http, "POST", "/v1/query", constant(TEN_THOUSAND))),
        Surface("psql, GROUP BY", partial(_simple, postgres, GROUP_BY)),
        Surface("psql, 10,000 rows", partial(_simple, postgres, TEN_THOUSAND)),
    ]


def _serve(settings: Settings, folder: Path, http: int, postgres: int) -> None:
    listen(settings, ServerOptions(folder, port=http, postgres_port=postgres), log_requests=False)


def _until_live(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        while True:
            try:
                client.get("/v1/views/bench/rows/1")
                if client.get("/ready").json()["live"] == 1:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)


def _measure(surface: Surface, clients: int, server: int, rows: int, seconds: int) -> None:
    used = processor_seconds(server)
    context = multiprocessing.get_context("fork")
    taken: multiprocessing.SimpleQueue[list[float]] = context.SimpleQueue()
    made = [context.Process(target=_ask, args=(surface, number, rows, seconds, taken)) for number in range(clients)]
    for process in made:
        process.start()
    found = sorted(each for _ in made for each in taken.get())
    for process in made:
        process.join()
    each = (processor_seconds(server) - used) / len(found) * 1000
    p50, p99 = (found[int((len(found) - 1) * share)] * 1000 for share in (0.5, 0.99))
    print(
        f"{surface.title}, clients: {clients}: {len(found) / seconds:,.0f} a second, p50 {p50:.2f} ms, "
        f"p99 {p99:.2f} ms, {each:.2f} ms of processor each",
        flush=True,
    )


def _ask(
    surface: Surface, number: int, rows: int, seconds: int, taken: multiprocessing.SimpleQueue[list[float]]
) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    random, ask, found = Random(number), surface.client(), []
    for _ in range(3):
        ask(random.randrange(rows))
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        ask(random.randrange(rows))
        found.append(time.perf_counter() - begun)
    taken.put(found)


def _http(port: int, method: str, path: str, body: Callable[[int], bytes] | None) -> Ask:
    """A client by hand: those of Python take longer than the server."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(key: int) -> None:
        sent = b"" if body is None else body(key)
        head = f"{method} {path.format(key)} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(sent)}\r\n\r\n"
        connection.sendall(head.encode() + sent)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 16)
        said, _, rest = data.partition(b"\r\n\r\n")
        assert b" 200 " in said.partition(b"\r\n")[0], data
        length = int(said.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(rest) < length:
            rest += connection.recv(1 << 20)

    return ask


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    startup = struct.pack("!i", 196_608) + b"user\0me\0database\0lake\0\0"
    connection.sendall(struct.pack("!i", len(startup) + 4) + startup)
    _until_ready(connection)
    return connection


def _until_ready(connection: socket.socket) -> None:
    data = b""
    while not data.endswith(b"Z\0\0\0\5I"):
        data += connection.recv(1 << 20)
    assert not data.startswith(b"E"), data


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _simple(port: int, text: str) -> Ask:
    connection = _connected(port)

    def ask(key: int) -> None:
        connection.sendall(_message(b"Q", text.format(key).encode() + b"\0"))
        _until_ready(connection)

    return ask


def _prepared(port: int, text: str) -> Ask:
    connection = _connected(port)
    parse = _message(b"P", b"s\0" + text.encode() + b"\0" + struct.pack("!hI", 1, 20))
    connection.sendall(parse + _message(b"S", b""))
    _until_ready(connection)

    def ask(key: int) -> None:
        bind = b"\0s\0" + struct.pack("!hhhiqhh", 1, 1, 1, 8, key, 1, 1)
        connection.sendall(_message(b"B", bind) + _message(b"E", b"\0" + struct.pack("!i", 0)) + _message(b"S", b""))
        _until_ready(connection)

    return ask


if __name__ == "__main__":
    main()
