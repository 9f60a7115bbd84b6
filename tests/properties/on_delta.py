"""A scenario on Delta tables: the production path, by either engine, interrupted at random failpoints."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.ivm.refresh import refresh, runtime
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.jobs.model.definitions import Source
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.state_store.arrangements import Arrangement, Arrangements, DataFile
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.properties.histories import Batch
from tests.properties.picker import Picker
from tests.properties.scenario import Scenario, Tally, scenario
from tests.support import lake_tables
from tests.support.examples import seed_of
from tests.support.invariants import assert_correct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "tests"
FAILPOINTS = ("inside-refresh", "after-refresh-commit")


# One pipeline serves so many views: an epoch costs Spark a second or two for each, four side by side.
_VIEWS = 24
FEWEST = 20
"""Views of a scenario that are left when some of those that are drawn are refused."""


class Interrupted(RuntimeError):
    """What happens at the failpoint in place of a kill."""


Context = Callable[[], RunContext]
"""The surroundings of the next refresh: which engines it has may differ from one to the next."""


def contexts(
    lake: LakeLayout, pick: Picker, *, spark: SparkSession | None = None, duckdb_engine: DuckDBEngine | None = None
) -> Context:
    """Refreshes by these engines; with both, one of the two is drawn for each refresh."""

    sessions = None if spark is None else SparkSessions(lambda: spark)

    def drawn() -> RunContext:
        both = spark is not None and duckdb_engine is not None
        by_spark = pick.chance(50) if both else spark is not None
        return RunContext(
            sessions if by_spark else None, lake, f"{PIPELINE}/1", duckdb_engine=None if by_spark else duckdb_engine
        )

    return drawn


def check_drawn(
    part: int, folder: Path, *, cuts: int, kill: bool = False, spark: SparkSession | None = None
) -> tuple[int, Tally]:
    """Draw a scenario and check it, by DuckDB, or by either where there is a session; (its seed, what was drawn).

    Args:
        part: of the examples of a run, each of `FEWEST` views at least.
        cuts: the epochs that its history is cut into, at most.
    """
    seed = seed_of(part)
    pick, tally, lake = Picker.seeded(seed), Tally(), LakeLayout(folder / "lake")
    example = scenario(pick, _VIEWS, tally, catalog=Catalog(lake), most=40, cuts=cuts, in_order=True)
    with DuckDBEngine("1GB", 2, _drawn_arrangements(pick, folder)) as duckdb_engine:
        try:
            check(contexts(lake, pick, spark=spark, duckdb_engine=duckdb_engine), lake, example, pick, kill=kill)
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{example}")
            raise
    return seed, tally


def _drawn_arrangements(pick: Picker, folder: Path) -> Arrangements | None:
    """Of every file, at once, whatever is asked for; where they were drawn, some are lost or broken on the way."""
    if not pick.chance(70):
        return None
    return DamagedArrangements(pick.count(0, 2**31), folder / "arrangements")


class DamagedArrangements(Arrangements):
    """Arrangements of which some are lost, shortened or altered before they are opened."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(folder, 1 << 30, fewest_rows=1, patience=1, largest_share=1000.0)
        self._draw = random.Random(seed)

    def open(self, file: DataFile, columns: Sequence[str]) -> Arrangement | None:
        if self._draw.random() < 0.3:
            self._damage(self.folder / self._draw.choice([file.entry(), file.entry(columns)]))
            with self._lock:  # several tables are refreshed at once
                self._opened.clear()
        return super().open(file, columns)

    def _damage(self, stored: Path) -> None:
        if stored.exists():
            data = stored.read_bytes()
            stored.unlink()
            match self._draw.randrange(3):
                case 0:
                    stored.write_bytes(data[: self._draw.randrange(len(data))])
                case 1:
                    place = self._draw.randrange(len(data))
                    stored.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def check(context: Context, lake: LakeLayout, example: Scenario, pick: Picker, *, kill: bool) -> None:
    """Every epoch: events into the logs, a refresh that is interrupted somewhere, another one, and all must be right.

    Args:
        kill: the interrupted refresh is a process of its own that gets SIGKILL, once in a history; otherwise an
            exception is raised.
    """
    killed_in = pick.count(0, len(example.history) - 1) if kill else None
    for epoch, batch in enumerate(example.history):
        feed(lake, batch, epoch)
        place, passes = pick.one(FAILPOINTS), pick.count(1, 8)
        if epoch == killed_in:
            _killed(lake, f"{place}:{passes}")
        elif pick.chance(50):
            _interrupted(context(), place, passes)
        failures = refreshed(context())
        assert not failures, f"epoch {epoch}: {failures}"
        assert_correct(lake, PIPELINE)


def feed(lake: LakeLayout, batch: Batch, epoch: int) -> None:
    """One commit for each log that something comes into; the first epoch makes all logs."""
    for source in Catalog(lake).pipeline(PIPELINE):
        if isinstance(source, Source):
            log = source.name if source.kind == "stream" else event_log(source).name
            if epoch == 0 or log in batch:
                lake_tables.append(lake, log, batch.get(log, []), epoch)


def refreshed(context: RunContext) -> dict[str, str]:
    """Refresh all views; what failed, by table."""
    catalog = Catalog(context.lake)
    levels = maintained(catalog.pipeline(PIPELINE), catalog)
    failures = refresh_all(context, levels, frozenset()).failures
    return {table: str(error) for table, error in failures.items()}


def _interrupted(context: RunContext, place: str, passes: int) -> None:
    lock, left = Lock(), [passes]

    def fail(name: str) -> None:
        with lock:
            left[0] -= name == place
            if name == place and left[0] == 0:
                raise Interrupted(name)

    with pytest.MonkeyPatch.context() as patch:
        for module in (refresh, runtime):
            patch.setattr(module, "failpoint", fail)
        refreshed(context)


def _killed(lake: LakeLayout, failpoint: str) -> None:
    """A refresh in a process of its own; it may end before it passes the failpoint so often."""
    command = [sys.executable, "-m", "tests.properties.on_delta", str(lake.root)]
    ended = subprocess.run(command, env=os.environ | {"STRANDLINE_FAILPOINT": failpoint}, check=False, timeout=300)
    assert ended.returncode in (0, -signal.SIGKILL)


def main(root: str) -> None:
    """Refresh the views of a lake once, in this process."""
    from strandline.jobs.model.settings import SparkSettings
    from strandline.jobs.run.spark import spark_session

    with spark_session(SparkSettings(master="local[2]", shuffle_partitions=2), "strandline-child") as spark:
        refreshed(RunContext(SparkSessions(lambda: spark), LakeLayout(Path(root)), f"{PIPELINE}/1"))


if __name__ == "__main__":
    main(sys.argv[1])
