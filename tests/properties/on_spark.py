"""A scenario on Spark and Delta: the production path, interrupted at random failpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from jobs.catalog.catalog import Catalog
from jobs.catalog.relations import event_log
from jobs.ivm.refresh import refresh, runtime
from jobs.ivm.refresh.context import RunContext
from jobs.model.definitions import Source
from jobs.run.refresh_views import refresh_all
from jobs.run.schedule import maintained
from state_store.layout import Lake
from tests.properties.histories import Batch
from tests.properties.picker import Picker
from tests.properties.scenario import Scenario
from tests.support import lake_tables
from tests.support.invariants import assert_correct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "tests"
FAILPOINTS = ("inside-refresh", "after-refresh-commit")


class Interrupted(RuntimeError):
    """What happens at the failpoint in place of a kill."""


def check(spark: SparkSession, lake: Lake, scenario: Scenario, pick: Picker, *, kill: bool) -> None:
    """Every epoch: events into the logs, a refresh that is interrupted somewhere, another one, and all must be right.

    Args:
        kill: the interrupted refresh is a process of its own that gets SIGKILL, once in a history; otherwise an
            exception is raised.
    """
    killed_in = pick.count(0, len(scenario.history) - 1) if kill else None
    for epoch, batch in enumerate(scenario.history):
        feed(lake, batch, epoch)
        place, passes = pick.one(FAILPOINTS), pick.count(1, 8)
        if epoch == killed_in:
            _killed(lake, f"{place}:{passes}")
        elif pick.chance(50):
            _interrupted(spark, lake, place, passes)
        failures = refreshed(spark, lake)
        assert not failures, f"epoch {epoch}: {failures}"
        assert_correct(lake, PIPELINE)


def feed(lake: Lake, batch: Batch, epoch: int) -> None:
    """One commit for each log that something comes into; the first epoch makes all logs."""
    for source in Catalog(lake).pipeline(PIPELINE):
        if isinstance(source, Source):
            log = source.name if source.kind == "stream" else event_log(source).name
            if epoch == 0 or log in batch:
                lake_tables.append(lake, log, batch.get(log, []), epoch)


def refreshed(spark: SparkSession, lake: Lake) -> dict[str, str]:
    """Refresh all views; what failed, by table."""
    catalog = Catalog(lake)
    levels = maintained(catalog.pipeline(PIPELINE), catalog)
    failures = refresh_all(RunContext(spark, lake, f"{PIPELINE}/1"), levels, frozenset()).failures
    return {table: str(error) for table, error in failures.items()}


def _interrupted(spark: SparkSession, lake: Lake, place: str, passes: int) -> None:
    lock, left = Lock(), [passes]

    def fail(name: str) -> None:
        with lock:
            left[0] -= name == place
            if name == place and left[0] == 0:
                raise Interrupted(name)

    with pytest.MonkeyPatch.context() as patch:
        for module in (refresh, runtime):
            patch.setattr(module, "failpoint", fail)
        refreshed(spark, lake)


def _killed(lake: Lake, failpoint: str) -> None:
    """A refresh in a process of its own; it may end before it passes the failpoint so often."""
    command = [sys.executable, "-m", "tests.properties.on_spark", str(lake.root)]
    ended = subprocess.run(command, env=os.environ | {"STRANDLINE_FAILPOINT": failpoint}, check=False, timeout=300)
    assert ended.returncode in (0, -signal.SIGKILL)


def main(root: str) -> None:
    """Refresh the views of a lake once, in this process."""
    from jobs.model.settings import SparkSettings
    from jobs.run.spark import spark_session

    with spark_session(SparkSettings(master="local[2]", shuffle_partitions=2), "strandline-child") as spark:
        refreshed(spark, Lake(Path(root)))


if __name__ == "__main__":
    main(sys.argv[1])
