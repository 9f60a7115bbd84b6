"""The campaign of bad clients: `python -m tests.campaigns.server --seed N --requests M`.

A server of its own process is sent requests that are malformed, hostile or slow, over HTTP and PostgreSQL's
protocol, by several clients at once. All the while one client looks a key up over HTTP and one over PostgreSQL: each
answer is right and comes within a second. In the end the server answers right, holds no connection of those that are
gone, ends when it is told to, and never had more memory than its budget.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final
from urllib.parse import quote

import psycopg

from infra.ports import free_port
from strandline.jobs.model.settings import load_settings
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
    CREATE TABLE kept WITH (STATE = 'partial') AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""
ROWS: Final = 300
ANSWER: Final = {"town": "Rome", "visits": 100, "n": 14_850}
WITHIN_SECONDS: Final = 1.0
IDLE: Final = "a pipe to an idle process"
"""What the machine itself takes is not the server's."""
BUDGET_BYTES: Final = 900 << 20
"""Of the process that all share; those of queries have limits of their own. It has 200 MB when it begins, and keeps at
most 256 MB of bodies that have not ended and 256 MB of answers that nobody takes."""
CLIENTS: Final = 16
_BRIEFLY: Final = 0.3
"""Seconds that one waits who has said half of something."""
_PATIENCE: Final = 20.0
"""Seconds that a bad client waits for an answer: a query may take ten, and two wait for each other."""
_ENDS_SECONDS: Final = 20
"""Requests may finish for five seconds."""
_HALF_OPEN: Final = 200
"""Connections that stay half open at once, as long as the server lets them."""

Address = tuple[str, int]


@dataclass
class Found:
    """What the campaign saw."""

    sent: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)
    looked_up: Counter[str] = field(default_factory=Counter)
    most_bytes: int = 0
    lock: Lock = field(default_factory=Lock)

    def say(self, what: str) -> None:
        with self.lock:
            self.wrong.append(what)


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, and its process."""

    web: Address
    postgres: Address
    process: subprocess.Popen[str]

    def memory(self) -> int:
        """The memory of the process that all share."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """`strandline serve` over a small lake."""
    served = ServedLake(load_settings(lake=folder / "lake"), DEFINITIONS)
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": n, "town": ("Rome", "Oslo", "Lima")[n % 3], "n": n} for n in range(ROWS)])
        served.refresh(duckdb_engine)
    web, port = free_port(), free_port()
    command = [sys.executable, "-m", "strandline.jobs.cli.main", "serve", "--listen", f"127.0.0.1:{web}"]
    command += ["--postgres-port", str(port), "--folder", str(folder / "server")]
    env = {**os.environ, "STRANDLINE_LAKE": str(folder / "lake"), "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, text=True)
        try:
            server = Server(("127.0.0.1", web), ("127.0.0.1", port), process)
            _until_right(server)
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _until_right(server: Server) -> None:
    """Wait until it answers from the replica."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(OSError, http.client.HTTPException, KeyError):
            if look_up(server.web) == ANSWER:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not start")


def look_up(address: Address) -> object:
    """The row of a key, over HTTP."""
    connection = http.client.HTTPConnection(*address, timeout=_PATIENCE)
    try:
        connection.request("GET", "/v1/views/by_town/rows/Rome")
        return json.loads(connection.getresponse().read())["row"]
    finally:
        connection.close()


def campaign(seed: int, requests: int) -> Found:
    """Send so many bad requests, and say what came of it."""
    found, done = Found(), Event()
    with tempfile.TemporaryDirectory(prefix="bad-clients-") as folder, serving(Path(folder)) as server:
        files = server.files()
        watchers = [Thread(target=each, args=(server, found, done)) for each in WATCHERS]
        requests_left = iter(_planned(seed, requests))
        clients = [Thread(target=_be_bad, args=(server, found, requests_left)) for _ in range(CLIENTS)]
        for thread in (*watchers, *clients):
            thread.start()
        for thread in clients:
            thread.join()
        done.set()
        for thread in watchers:
            thread.join()
        if server.process.poll() is not None:
            found.say(f"the server has ended with {server.process.returncode}")
        elif look_up(server.web) != ANSWER:
            found.say("in the end the look-up is wrong")
        _check_let_go(server, files, found)
        _check_ends(server, found)
        log = (Path(folder) / "log").read_text()
        found.wrong += [f"in the log: {each[-600:]}" for each in log.split("Traceback")[1:]]
    return found


def _check_let_go(server: Server, before: int, found: Found) -> None:
    """Check that the connections of clients that are gone are closed."""
    end = time.monotonic() + 30
    while server.files() > before + CLIENTS and time.monotonic() < end:
        time.sleep(0.2)
    if server.files() > before + CLIENTS:
        found.say(f"{server.files()} files are open, {before} at the beginning")


def _check_ends(server: Server, found: Found) -> None:
    """Check that SIGTERM ends it, whatever clients left behind."""
    server.process.terminate()
    try:
        server.process.wait(_ENDS_SECONDS)
    except subprocess.TimeoutExpired:
        found.say(f"SIGTERM has not ended it after {_ENDS_SECONDS} s")


def _watch(server: Server, found: Found, done: Event) -> None:
    while not done.wait(0.1):
        found.most_bytes = max(found.most_bytes, server.memory())


def _watch_web(server: Server, found: Found, done: Event) -> None:
    def ask() -> object:
        return look_up(server.web)

    _watched("HTTP", ask, ANSWER, found, done)


def _watch_postgres(server: Server, found: Found, done: Event) -> None:
    host, port = server.postgres
    with psycopg.connect(host=host, port=port, user="good", dbname="lake", autocommit=True) as session:

        def ask() -> object:
            return session.execute("SELECT visits FROM by_town WHERE town = 'Rome'").fetchall()

        _watched("PostgreSQL", ask, [(ANSWER["visits"],)], found, done)


def _watched(name: str, ask: Callable[[], object], answer: object, found: Found, done: Event) -> None:
    while not done.wait(0.05):
        begun = time.monotonic()
        try:
            said = ask()
        except Exception as error:  # whatever it is, a client that is right has no answer
            said = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - begun
        found.looked_up[name] += 1
        found.slowest[name] = max(found.slowest.get(name, 0.0), seconds)
        if said != answer:
            found.say(f"a look-up over {name}: {str(said)[:200]}")


@contextmanager
def _idle() -> Iterator[Callable[[], object]]:
    """A process that does nothing but give back what it is sent: it takes what this machine takes now for anybody."""
    command = [sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        there, back = process.stdin, process.stdout

        def ask() -> str:
            there.write("Rome\n")
            there.flush()
            return back.readline()

        yield ask
        there.close()


def _watch_idle(_: Server, found: Found, done: Event) -> None:
    with _idle() as ask:
        _watched(IDLE, ask, "Rome\n", found, done)


def _planned(seed: int, requests: int) -> list[tuple[str, int]]:
    """The kinds of the requests, and what decides about each."""
    chance = random.Random(seed)
    names, weights = zip(*((name, weight) for name, (weight, _) in KINDS.items()), strict=True)
    return [(name, chance.getrandbits(64)) for name in chance.choices(names, weights, k=requests)]


WATCHERS: Final = (_watch_web, _watch_postgres, _watch_idle, _watch)


def _be_bad(server: Server, found: Found, requests: Iterator[tuple[str, int]]) -> None:
    half_open: list[socket.socket] = []
    while True:
        with found.lock:
            name, seed = next(requests, ("", 0))
        if not name:
            break
        try:
            said = KINDS[name][1](server, random.Random(seed), half_open)
        except (ConnectionError, TimeoutError, http.client.HTTPException, psycopg.Error) as error:
            said = type(error).__name__
        with found.lock:
            found.sent[name] += 1
            found.statuses[f"{name}: {said}"] += 1
        if said.startswith("5") and said != "503":
            found.say(f"{name}: {said}")
        while len(half_open) > _HALF_OPEN // CLIENTS:
            half_open.pop(0).close()
    for each in half_open:
        each.close()


PIECES: Final = ("by_town", "town", "'", '"', "%00", "../../etc/passwd", "9" * 40, "ü", "NULL", "{}", "%", "\\", "-1")
WORDS: Final = (
    *("SELECT", "FROM", "WHERE", "(", ")", ",", "*", "by_town", "town", "n", "=", "'", "||", "OVER", "JOIN", "ON"),
    *("->", "::", "CAST", "CASE", "WHEN", "END", "LIMIT", "1", "NULL", "ARRAY[", "]", "E'\\", "~", "AT TIME ZONE", ";"),
)
HEAVY: Final = (
    "SELECT LEN(LPAD(town, 200000000, 'x')) AS x FROM by_town",
    "SELECT COUNT(*) FROM visits a, visits b, visits c, visits d, visits e",
    "SELECT a.id, b.id FROM visits a, visits b, visits c",
    f"SELECT town FROM by_town WHERE {' OR '.join(f'n = {n}' for n in range(1_500))}",
    f"SELECT {'(' * 3_000}1{')' * 3_000} FROM by_town",
    f"SELECT {' + '.join(['n'] * 4_000)} AS x FROM by_town",
    "SELECT GENERATE_SERIES(1, 2000000000) AS x FROM by_town",
)


def _web(server: Server, raw: bytes, *, wait: float = _PATIENCE) -> str:
    """Send bytes; the status that comes, or how the connection ended."""
    with socket.create_connection(server.web, timeout=wait) as connection:
        connection.sendall(raw)
        answer = connection.recv(65_536)
    return answer.split(b" ", 2)[1].decode("latin-1") if answer.startswith(b"HTTP/") else "closed"


def _request(method: str, path: str, body: bytes = b"", *heads: str) -> bytes:
    given = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *heads]
    given += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join(given).encode("latin-1", errors="replace") + b"\r\n\r\n" + body


def _path(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    parts = [quote(chance.choice(PIECES), safe=chance.choice(("", "/%"))) for _ in range(chance.randrange(1, 5))]
    query = "&".join(f"{chance.choice(('key', 'from', 'limit', 'at_least', 'x'))}={quote(each)}" for each in parts)
    path = chance.choice(("/v1/views/", "/v1/streams/", "/", "/v1/views/kept/rows/")) + "/".join(parts)
    return _web(server, _request(chance.choice(("GET", "POST", "PUT", "HEAD", "TRACE")), f"{path}?{query}"))


def _body(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    path = chance.choice(
        ("/v1/query", "/query", "/ksql", "/v1/streams/visits", "/v1/views/by_town/rows", "/query-stream")
    )
    body = chance.choice(
        (
            *(
                b"{" * 5_000,
                b"[" * 100_000,
                b'{"sql": 1}',
                b"\xff\xfe\x00",
                b'{"rows": {"a": 1}}',
                b"nul",
                b'"\\ud800"',
            ),
            *(b'{"sql": "SELECT \\u0000"}', b'{"keys": [[[[]]]]}', b'{"keys": ' + b"[1]," * 9_000 + b"[1]}"),
            *(
                b'{"rows": [' + b'{"id": 1e400},' * 50 + b'{"id": NaN}]}',
                b'{"a": 1, "a": 2}',
                b'{"sql": "' + b"x" * 200_000,
            ),
        )
    )
    return _web(server, _request("POST", path, body, "Content-Type: application/json"))


def _statement(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    sql = "SELECT " + " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 12)))
    return _web(server, _request("POST", "/v1/query", json.dumps({"sql": sql}).encode()))


def _heavy(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    body = json.dumps({"sql": chance.choice(HEAVY)}).encode()
    return _web(server, _request("POST", "/v1/query", body))


def _heavy_where(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    where = quote("LEN(LPAD(town, 200000000, 'x')) > 0")
    return _web(server, _request("GET", f"/v1/views/by_town/changes?where={where}&limit=1"), wait=_BRIEFLY)


def _head(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    raw = chance.choice(
        (
            *(
                b"\x16\x03\x01\x02\x00\x01",
                b"GET\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"\0" * 1_000,
                b"GET / HTTP/9\r\n\r\n",
            ),
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3_000 + b"\r\n",
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
            b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999999\r\n\r\n{}",
            b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"GET /ws/query HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )
    )
    return _web(server, raw, wait=_BRIEFLY)


def _slow(server: Server, chance: random.Random, half_open: list[socket.socket]) -> str:
    """A connection that says half of something, and stays."""
    address = chance.choice((server.web, server.postgres))
    connection = socket.create_connection(address, timeout=_PATIENCE)
    connection.sendall(
        chance.choice((b"", b"GET / HTTP/1.1\r\n", b"\0\0\0", b"POST /v1/query HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"))
    )
    half_open.append(connection)
    return "half open"


MANY_ROWS: Final = "SELECT a.id, b.town, LPAD(a.town, 400, 'x') AS x FROM visits a, visits b"
"""36 MB."""


def _deaf(server: Server, chance: random.Random, half_open: list[socket.socket]) -> str:
    """A connection that asks for much, takes nothing, and stays."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(_PATIENCE)
    connection.connect(server.web)
    upgrade = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    pushed = {"ksql": "SELECT * FROM VISITS EMIT CHANGES;", "streamsProperties": {"auto.offset.reset": "earliest"}}
    socket_asked = f"GET /ws/query?request={quote(json.dumps(pushed))} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    connection.sendall(
        chance.choice(
            (
                _request("GET", f"/v1/views/visits/changes?where=n%3E{chance.randrange(9)}"),
                _request("POST", "/v1/query", json.dumps({"sql": MANY_ROWS}).encode()),
                _request("POST", "/v1/query", b"{" * (4 << 20)),
                "\r\n".join((socket_asked + "Connection: Upgrade", *upgrade)).encode() + b"\r\n\r\n",
            )
        )
    )
    half_open.append(connection)
    return "deaf"


def _gone(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    """A client that asks, and goes before the answer."""
    with socket.create_connection(server.web, timeout=_PATIENCE) as connection:
        connection.sendall(
            chance.choice(
                (
                    _request("GET", "/v1/views/by_town/changes"),
                    _request("POST", "/query", b'{"ksql": "SELECT * FROM BY_TOWN EMIT CHANGES;"}'),
                    _request("POST", "/v1/query", b'{"sql": "SELECT COUNT(*) FROM visits a, visits b"}'),
                )
            )
        )
    return "gone"


def _message(kind: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return kind + struct.pack("!i", len(body) + 4 if length is None else length) + body


_STARTUP: Final = _message(b"", struct.pack("!i", 196_608) + b"user\0bad\0database\0lake\0\0")


def _greeting(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    raw = chance.choice(
        (
            *(b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", struct.pack("!i", 2_000_000_000), struct.pack("!i", -1)),
            _message(b"", struct.pack("!i", 196_608) + b"user"),
            _message(b"", struct.pack("!ii", 80_877_103, 0)),
            _message(b"", struct.pack("!iii", 80_877_102, 1, 2)),
            _message(b"", struct.pack("!i", 131_072) + b"user\0x\0\0"),
        )
    )
    return _postgres(server, raw)


def _messages(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    bad = (
        *(
            _message(b"Q", b"SELECT 1"),
            _message(b"Q", b"\xff\xff\0"),
            _message(b"Z", b"?"),
            _message(b"d", b"x"),
            _message(b"c"),
        ),
        *(
            _message(b"P", b"\0SELECT $1\0\xff\xff"),
            _message(b"B", b"\0\0\0\1"),
            _message(b"D", b"X"),
            _message(b"E", b"no\0"),
        ),
        *(_message(b"Q", b"", 1_900_000_000), _message(b"Q", b"", -7), _message(b"F", b"\0" * 9), _message(b"S")),
        _message(b"P", b"\0SELECT " + b"$1, " * 5_000 + b"1\0\0\0"),
        _message(b"P", b"\0SELECT town FROM by_town WHERE n = $65535\0\0\0") + _message(b"S"),
        _message(b"Q", b"; ".join([b"SELECT 1"] * 500) + b"\0"),
        _message(b"Q", b"COPY by_town TO STDOUT (FORMAT binary); COPY by_town FROM STDIN\0"),
        _message(b"Q", ("SELECT " + " ".join(chance.choice(WORDS) for _ in range(8))).encode() + b"\0"),
        _message(b"Q", b"BEGIN; DECLARE c CURSOR FOR SELECT * FROM visits; FETCH 999999999999 FROM c\0"),
    )
    sent = b"".join(chance.choice(bad) for _ in range(chance.randrange(1, 4)))
    return _postgres(server, _STARTUP + sent + _message(b"X"))


def _heavy_session(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    return _postgres(server, _STARTUP + _message(b"Q", chance.choice(HEAVY).encode() + b"\0") + _message(b"X"))


def _cancel(server: Server, chance: random.Random, _: list[socket.socket]) -> str:
    key = struct.pack("!iii", 80_877_102, chance.getrandbits(31), chance.getrandbits(31))
    return _postgres(server, _message(b"", key))


def _postgres(server: Server, raw: bytes) -> str:
    """Send bytes, and read until the server closes or says no more."""
    with socket.create_connection(server.postgres, timeout=_BRIEFLY) as connection:
        connection.sendall(raw)
        answer = b""
        with suppress(TimeoutError):
            while piece := connection.recv(65_536):
                answer += piece
    return "an answer" if answer else "closed"


KINDS: Final[dict[str, tuple[int, Callable[[Server, random.Random, list[socket.socket]], str]]]] = {
    "path": (200, _path),
    "body": (150, _body),
    "statement": (15, _statement),
    "head": (150, _head),
    "slow": (100, _slow),
    "gone": (60, _gone),
    "deaf": (20, _deaf),
    "greeting": (80, _greeting),
    "messages": (120, _messages),
    "cancel": (40, _cancel),
    "heavy": (1, _heavy),
    "heavy where": (1, _heavy_where),
    "heavy session": (1, _heavy_session),
}
"""{kind: of a thousand requests so many, and how one is sent}."""


def report(found: Found) -> Sequence[str]:
    """What was seen, in lines."""
    looked = ", ".join(
        f"{count:,} look-ups over {name}, the slowest {found.slowest[name]:.2f} s"
        for name, count in found.looked_up.items()
    )
    return (
        f"{sum(found.sent.values()):,} bad requests: {dict(found.sent)}",
        f"{looked}; {found.most_bytes >> 20} MB at most, of {BUDGET_BYTES >> 20}",
        *(f"WRONG {each}" for each, _ in Counter(found.wrong).most_common(40)),
    )


def check(found: Found) -> None:
    """Assert that nothing went wrong."""
    if found.most_bytes > BUDGET_BYTES:
        found.say(f"{found.most_bytes >> 20} MB")
    allowed = WITHIN_SECONDS + found.slowest[IDLE]
    found.wrong += [f"over {name}: {slowest:.2f} s" for name, slowest in found.slowest.items() if slowest > allowed]
    assert not found.wrong, "\n".join(report(found))
    assert found.looked_up["HTTP"]
    assert found.looked_up["PostgreSQL"]


def main() -> int:
    """The campaign; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description="the campaign of bad clients")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20_000)
    asked = parser.parse_args()
    begun = time.monotonic()
    found = campaign(asked.seed, asked.requests)
    print("\n".join(report(found)))
    print(f"{time.monotonic() - begun:.0f} s", dict(found.statuses.most_common(60)))
    try:
        check(found)
    except AssertionError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
