"""PostgreSQL's clients against a running server: psql, drivers, the questions of BI tools.

    python -m tests.campaigns.postgres_clients [--python PATH] [--jdbc JAR] [--only NAME …]

Clients that are not there are named and skipped. Those in Python are looked for in the environment of `--python`, which
needs none of the project: `python -m venv x && x/bin/pip install psycopg[binary] psycopg2-binary pg8000 asyncpg
sqlalchemy pandas`. pgJDBC is a jar of Maven Central, org.postgresql:postgresql. It ends with status 1 when one failed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.state.access import ServerOptions
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake

PROGRAMS = "tests.campaigns.postgres"
JDBC = Path(__file__).with_name("postgres") / "Jdbc.java"
ROOT = Path(__file__).parents[2]
"""What the programs in Python find themselves by; of the project they import what they share, nothing else."""
SECONDS = 180
DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE everything (id BIGINT PRIMARY KEY, flag BOOLEAN, small INT, ratio DOUBLE, price DECIMAL(12, 2),
        name VARCHAR, raw BYTES, day DATE, opens TIME, at TIMESTAMP, numbers ARRAY<BIGINT>, words ARRAY<VARCHAR>,
        tags MAP<VARCHAR, INT>, place STRUCT<x DOUBLE, y DOUBLE>) WITH (KAFKA_TOPIC = 'everything');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
    CREATE TABLE by_id AS SELECT id, town, COUNT(*) AS visits FROM visits GROUP BY id, town;
    CREATE TABLE "Odd Name" AS SELECT town, COUNT(*) AS "How Many" FROM visits GROUP BY town;
"""
TOWNS = ("Rome", "Oslo", "a/b ü", "Lima")
EVERYTHING = {
    **{"id": 1, "flag": True, "small": -7, "ratio": 1.5, "price": Decimal("12.34"), "name": "it's ü"},
    **{"raw": b"\0\xff", "day": dt.date(2024, 5, 1), "opens": 34_500_250},
    **{"at": dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC), "numbers": [1, None, 3]},
    **{"words": ["a", "b,c", 'd"'], "tags": [("hot", 1)], "place": {"x": 1.0, "y": 2.5}},
}


@dataclass(frozen=True)
class Client:
    """One client and how it is driven.

    Attributes:
        command: `{url}` and `{libpq}` stand for the address.
        missing: why it cannot be driven here; empty if it can.
    """

    name: str
    command: tuple[str, ...]
    missing: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a client said: its version, how many checks held, which failed."""

    version: str
    held: int
    failures: tuple[str, ...]


def clients(python: str, jar: Path | None) -> Iterator[Client]:
    """All clients, those that are missing too."""

    def in_python(name: str, program: str, needs: Sequence[str], *more: str) -> Client:
        absent = [each for each in needs if not _has(python, each)]
        return Client(
            name,
            (python, "-m", f"{PROGRAMS}.{program}", "{url}", *more),
            f"{python} has no {', '.join(absent)}" if absent else "",
        )

    psql = "" if shutil.which("psql") else "no psql on the PATH"
    yield Client("psql", (sys.executable, "-m", f"{PROGRAMS}.psql", "{libpq}"), psql)
    for driver in ("psycopg", "psycopg2", "pg8000", "asyncpg"):
        yield in_python(f"SQLAlchemy, {driver}", "with_sqlalchemy", ("sqlalchemy", driver), driver)
    yield in_python("asyncpg", "with_asyncpg", ("asyncpg",))
    yield in_python("pandas", "with_pandas", ("pandas", "sqlalchemy", "psycopg"))
    yield in_python("BI tools", "tools", ("psycopg",))
    java = "" if shutil.which("java") else "no java on the PATH"
    for option in ("", "?prepareThreshold=-1", "?binaryTransfer=false"):
        run = ("java", "-cp", str(jar), str(JDBC), "{place}" + option)
        yield Client(f"pgJDBC{option}", run, java or ("" if jar else "no jar: --jdbc names it"))


def drive(client: Client, address: str) -> Outcome:
    """Run a client's program to its end."""
    known = dict(part.split("=") for part in address.split())
    place = f"{known['host']}:{known['port']}/{known['dbname']}"
    words = {"{url}": f"{known['user']}@{place}", "{libpq}": address, "{place}": place}
    command = [re.sub(r"{\w+}", lambda found: words[found[0]], each) for each in client.command]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    lines = done.stdout.splitlines()
    failures = [line.removeprefix("FAIL ") for line in lines if line.startswith("FAIL ")]
    if done.returncode:
        failures.append(f"ended with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    version = next((line.removeprefix("version ") for line in lines if line.startswith("version ")), "")
    return Outcome(version, sum(line.startswith("ok ") for line in lines), tuple(failures))


@contextmanager
def server() -> Iterator[str]:
    """The address of a server over a lake with every type, 1,000 keys, and a name in capitals."""
    with tempfile.TemporaryDirectory() as folder:
        served = ServedLake(load_settings(lake=Path(folder) / "lake"), DEFINITIONS)
        with served.duckdb_engine() as duckdb_engine:
            rows = [{"id": each, "town": TOWNS[each % len(TOWNS)], "n": each + 1} for each in range(1000)]
            served.append("visits", rows)
            served.append("everything", [EVERYTHING, {"id": 2}])
            served.refresh(duckdb_engine)
        with postgres_server(served.settings, ServerOptions(Path(folder) / "server", queries=2)) as address:
            yield address


def _has(python: str, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def main() -> int:
    """Drive all, or those whose name begins with one that is asked for."""
    parser = argparse.ArgumentParser(description="PostgreSQL's clients against a running server")
    parser.add_argument("--python", default=sys.executable, help="of an environment that has the clients in Python")
    parser.add_argument("--jdbc", type=Path, help="the jar of pgJDBC")
    parser.add_argument("--only", nargs="*", default=[""], help="names, or how they begin")
    asked = parser.parse_args()
    counted: Counter[str] = Counter()
    with server() as address:
        for client in clients(asked.python, asked.jdbc):
            if not client.name.startswith(tuple(asked.only)):
                continue
            if client.missing:
                counted["skipped"] += 1
                print(f"{client.name}: skipped, {client.missing}", flush=True)
                continue
            outcome = drive(client, address)
            counted.update(held=outcome.held, failed=len(outcome.failures))
            print(f"{client.name} ({outcome.version}): {outcome.held} held, {len(outcome.failures)} failed", flush=True)
            for failure in outcome.failures:
                print(f"  {failure}", flush=True)
    print(f"{counted['held']} checks held, {counted['failed']} failed, {counted['skipped']} clients skipped")
    return 1 if counted["failed"] or not counted["held"] else 0


if __name__ == "__main__":
    sys.exit(main())
