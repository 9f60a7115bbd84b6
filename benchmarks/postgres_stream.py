"""A million rows to a client of PostgreSQL's protocol: rows per second, and the memory that the server takes for them.

    python -m benchmarks.postgres_stream [--rows 1000000] [--fetch 10000]

The server is a process of its own, over one view. The answer is taken as it comes, in text and in binary, by a cursor,
`--fetch` rows at a time, and by COPY.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measuring.process_tree import processes_below
from benchmarks.serve import make_view
from strandline.jobs.model.settings import load_settings

PORT = 18_433
_ROWS = "SELECT id, customer, total FROM bench"
_COMMAND = "from strandline.jobs.cli.main import main; main()"


def main() -> None:
    """Serve, take the rows each way, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fetch", type=int, default=10_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(Path(folder), given.rows) as (address, server),
        psycopg.connect(address) as session,
    ):
        session.execute(f"{_ROWS} LIMIT 1").fetchall()
        for binary in (False, True):
            begun = time.perf_counter()
            with session.cursor(binary=binary) as cursor:
                taken = sum(1 for _ in cursor.stream(_ROWS))
            _print(f"stream, {'binary' if binary else 'text'}", taken, time.perf_counter() - begun, server)
        begun = time.perf_counter()
        with session.cursor(name="rows") as named:
            named.itersize = given.fetch
            taken = sum(1 for _ in named.execute(_ROWS))
        _print(f"cursor, {given.fetch:,} rows a time", taken, time.perf_counter() - begun, server)
        begun = time.perf_counter()
        with session.cursor() as copying, copying.copy(f"COPY ({_ROWS}) TO STDOUT (FORMAT csv)") as copy:
            taken = sum(1 for _ in copy)
        _print("COPY as CSV", taken, time.perf_counter() - begun, server)


@contextmanager
def _served(folder: Path, rows: int) -> Iterator[tuple[str, int]]:
    """How to connect, and the server's pid."""
    make_view(load_settings(lake=folder / "lake"), rows)
    listen = ("--listen", f"127.0.0.1:{PORT + 1}", "--postgres-port", str(PORT), "--folder", str(folder / "server"))
    environment = os.environ | {"STRANDLINE_LAKE": str(folder / "lake")}
    with subprocess.Popen([sys.executable, "-c", _COMMAND, "serve", *listen], env=environment) as server:
        try:
            address = f"host=127.0.0.1 port={PORT} user=me"
            _until_up(address)
            yield address, server.pid
        finally:
            server.terminate()


def _until_up(address: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _print(what: str, rows: int, seconds: float, server: int) -> None:
    peaks: dict[str, Any] = {"server": _peak(server), "all": sum(map(_peak, processes_below(server)))}
    shown = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in peaks.items())
    print(
        f"{what}: {rows:,} rows in {seconds:.2f} s, {rows / seconds:,.0f}/s; peak of memory so far: {shown}", flush=True
    )


def _peak(process: int) -> int:
    """The most memory that a process has had, bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(found.split()[1]) * 1024


if __name__ == "__main__":
    main()
