"""The soak: thousands of small epochs through five views in one process, by DuckDB. Does age cost anything?

    python -m benchmarks.soak [--epochs 10000] [--horizon-seconds 60]

Each epoch appends twenty clicks to the event log and refreshes all views; in every tenth a visitor moves to another
country, which takes rows back in a join. Every hundred epochs maintenance removes what is older than the horizon, as a
schedule would. Every 500 epochs are printed as one line: milliseconds per epoch, the most live files and files of a
table, entries of a table's log and their size, open handles, resident memory, seconds of maintenance. At the end each
view is compared with its SQL computed anew over the event logs, and its change feed is folded and compared with its
rows (`strandline verify --deep`).

The exit code is 1 when that does not hold, or when the last thousand epochs took more than 1.3 times the seconds of
the second thousand. With fewer than 4,000 epochs, tenths stand in for thousands.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.clicks.five_views import PAGES, STATEMENTS, VIEWS, VISITORS, click, country, section
from benchmarks.histories import PIPELINE, History
from strandline.jobs.catalog.relations import event_log, relation
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import RetentionSettings, Settings, load_settings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import RefreshUnit
from strandline.state_store.delta import log
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.paths import LakePath, sizes_below

SLOWER: Final = 1.3
"""How much longer the last thousand epochs may take than the second: more would mean that age costs something. The
first thousand pay for the start."""
PRINTED: Final = 500
CLICKS: Final = 20
MOVE_EVERY: Final = 10
_THOUSAND: Final = 1_000
# A second of event time an epoch: sixty epochs fill a window, so windows close as the soak goes on.
_EPOCH_MICROSECONDS: Final = 1_000_000
MAINTAINED: Final = 100


@dataclass(frozen=True)
class Figures:
    """What the lake and the process have come to.

    Attributes:
        live: the most files that one table's rows are in.
        files: the most files that one table's folder holds.
        entries: the most entries that one table's log has.
        log_bytes: of the largest log, with its checkpoints.
        handles: open files and sockets of this process.
        resident: bytes of memory of this process.
    """

    live: int
    files: int
    entries: int
    log_bytes: int
    handles: int
    resident: int

    def __str__(self) -> str:
        return (
            f"{self.live:5} {self.files:7,} {self.entries:8,} {self.log_bytes / 1e6:8.1f} {self.handles:8}"
            f" {self.resident / 1e6:8,.0f}"
        )


HEADINGS: Final = " epochs  ms/epoch  live   files  entries   log MB  handles   RSS MB  maintenance s"


class Soak:
    """The pipeline at work, over a lake of its own."""

    def __init__(self, settings: Settings, duckdb_engine: DuckDBEngine) -> None:
        self.seconds: list[float] = []
        self.maintenance = 0.0
        self._settings = settings
        assert isinstance(settings.lake, Path), "sizes and handles are those of a file system"
        self._history = History.over(settings.lake, STATEMENTS)
        catalog = self._history.interpreter.catalog
        self._logs = {"clicks": relation("clicks", catalog)}
        for name in ("visitors", "pages"):
            source = catalog.get(name)
            assert isinstance(source, Source)
            self._logs[name] = event_log(source)
        self._levels: list[list[RefreshUnit]] = self._history.levels()
        self._context = RunContext(None, self._history.lake, f"{PIPELINE}/1", None, duckdb_engine, "duckdb")
        self._append("visitors", [{"visitor": n, "country": country(n)} for n in range(VISITORS)])
        self._append("pages", [{"page": n, "section": section(n)} for n in range(PAGES)])

    def live(self, epochs: int) -> None:
        """So many epochs: events into the event logs, then every view. Raises StrandlineError."""
        for _ in range(epochs):
            began = time.perf_counter()
            epoch = len(self.seconds)
            self._append("clicks", [click(epoch * CLICKS + n) for n in range(CLICKS)])
            if epoch % MOVE_EVERY == MOVE_EVERY - 1:
                visitor = epoch // MOVE_EVERY % VISITORS
                self._append("visitors", [{"visitor": visitor, "country": country(visitor, 1 + epoch // VISITORS)}])
            done = refresh_all(self._context, self._levels, frozenset())
            for failure in done.failures.values():
                raise failure
            self.seconds.append(time.perf_counter() - began)
            if len(self.seconds) % MAINTAINED == 0:
                self._maintain()

    def _maintain(self) -> None:
        began = time.perf_counter()
        execute_maintenance(self._settings, plan_maintenance(self._settings))
        self.maintenance += time.perf_counter() - began

    def figures(self) -> Figures:
        """The present figures; the largest of all tables each."""
        lake = self._history.lake
        events = (relation.name for relation in self._logs.values())
        paths = [lake.table(name) for name in (*events, "visitors", "pages", *VIEWS)]
        return Figures(
            live=max(_live_files(path) for path in paths),
            files=max(len(sizes_below(path)) for path in paths),
            entries=max(len(log.versions(path)) for path in paths),
            log_bytes=max(sum(sizes_below(path / "_delta_log").values()) for path in paths),
            handles=len(os.listdir("/proc/self/fd")),
            resident=_resident(),
        )

    def _append(self, source: str, rows: Sequence[Mapping[str, object]]) -> None:
        at = len(self.seconds) * _EPOCH_MICROSECONDS
        events = pa.Table.from_pylist([{**row, "_timestamp": at, "_stream_time": at} for row in rows])
        self._history.append(self._logs[source], events, topic=source)


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--horizon-seconds", type=float, default=60.0, help="how long versions are kept")
    said = parser.parse_args(arguments)
    retention = RetentionSettings(horizon_days=said.horizon_seconds / 86_400)
    with tempfile.TemporaryDirectory(prefix="strandline-soak-") as folder:
        settings = load_settings(lake=Path(folder) / "lake", retention=retention)
        with DuckDBEngine(f"{settings.kernel_memory_mb}MB", os.cpu_count() or 2) as duckdb_engine:
            faults = lived(Soak(settings, duckdb_engine), said.epochs)
        checks = verify(settings, deep=True)
        faults += [f"{check.table}: {check.check}: {check.what}" for check in checks if check.ok is False]
        print(f"verified: {sum(check.ok is True for check in checks)} checks hold")
    for fault in faults:
        print(f"NOT HELD: {fault}")
    print("held" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


def lived(soak: Soak, epochs: int) -> list[str]:
    """Live so many epochs and print their figures; what did not hold."""
    print(HEADINGS)
    while len(soak.seconds) < epochs:
        step = min(PRINTED, epochs - len(soak.seconds))
        before = soak.maintenance
        soak.live(step)
        spent = sum(soak.seconds[-step:]) / step
        kept = soak.maintenance - before
        print(f"{len(soak.seconds):7,} {spent * 1000:9.1f} {soak.figures()} {kept:13.1f}", flush=True)
    return slower(soak.seconds)


def slower(seconds: list[float]) -> list[str]:
    """The fault of epochs that get slower with age, after a line that says by how much."""
    part = _THOUSAND if len(seconds) >= 4 * _THOUSAND else len(seconds) // 10
    early, late = sum(seconds[part : 2 * part]), sum(seconds[-part:])
    print(f"the second {part:,} epochs {early:.1f} s, the last {part:,} {late:.1f} s: {late / early:.2f} times")
    return [f"the last epochs took {late / early:.2f} times as long"] if late > SLOWER * early else []


def _live_files(path: LakePath) -> int:
    newest = log.newest_version(path)
    return 0 if newest is None else len(read_snapshot(path, newest).files)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
