"""Late rows in the records of Delta tables: counted by DuckDB, once, whenever a refresh is killed and repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.invariants import assert_correct
from tests.support.waiting import PATIENCE_SECONDS

WINDOW = "WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY shop"
SHOP = f"""
CREATE STREAM sales (shop VARCHAR) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales {WINDOW};
CREATE TABLE closed AS SELECT shop, COUNT(*) AS n FROM sales {WINDOW} EMIT FINAL;
"""


@pytest.fixture(autouse=True)
def _made(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    sales(lake, [12, 3, 40, 4], 0)


def sales(lake: LakeLayout, seconds: Sequence[int], epoch: int, clock: int = 0) -> None:
    """One commit of the event log: an event at each of these seconds, in order of arrival."""
    rows: list[dict[str, object]] = []
    for place, second in enumerate(seconds):
        clock = max(clock, second)
        times = (lake_tables.NOON + timedelta(seconds=each) for each in (second, clock))
        rows.append(dict(zip(("_timestamp", "_stream_time"), times, strict=True)))
        rows[-1] |= {"shop": "a", "_partition": 0, "_offset": 10 * epoch + place}
    lake_tables.append(lake, "sales", rows, epoch)


def late(settings: Settings) -> dict[str, int | None]:
    return {table.name: table.late for table in drain(settings, "shop").tables}


def test_late_rows_are_counted_also_when_they_are_all_that_came(settings: Settings, lake: LakeLayout) -> None:
    assert late(settings) == {"sales": None, "by_shop": 1, "closed": 1}
    before = reader.head(lake.table("by_shop"))
    sales(lake, [5, 6], 1, clock=40)
    assert late(settings) == {"sales": None, "by_shop": 3, "closed": 3}
    after = reader.head(lake.table("by_shop"))
    assert before is not None
    assert after is not None
    assert (after.version, after.record.mode, after.record.late) == (before.version + 1, "advance", 3)
    assert late(settings)["by_shop"] == 3
    assert reader.head(lake.table("by_shop")) == after
    assert {row[1]: row[8] for row in status(settings).rows} == {"sales": None, "by_shop": 3, "closed": 3}
    assert_correct(lake, "shop")


_CHILD = """
import sys
from pathlib import Path
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
drain(Settings(lake=Path(sys.argv[1])), "shop")
"""


@pytest.mark.parametrize("step", ["inside-refresh", "after-log-entry", "after-refresh-commit"])
def test_a_refresh_that_is_killed_and_repeated_counts_nothing_twice(
    settings: Settings, lake: LakeLayout, step: str
) -> None:
    late(settings)
    sales(lake, [41, 5, 6], 1, clock=40)
    environment = os.environ | {"STRANDLINE_FAILPOINT": step}
    command = [sys.executable, "-c", _CHILD, str(lake.root)]
    assert subprocess.run(command, env=environment, check=False, timeout=PATIENCE_SECONDS).returncode == -signal.SIGKILL
    assert late(settings) == {"sales": None, "by_shop": 3, "closed": 3}
    assert_correct(lake, "shop")


def test_a_session_that_can_take_a_row_is_not_shown_as_final(settings: Settings, lake: LakeLayout) -> None:
    window = "WINDOW SESSION (10 SECONDS, GRACE PERIOD 3 SECONDS) GROUP BY shop EMIT FINAL"
    list(Interpreter(settings, "shop").run(f"CREATE TABLE over AS SELECT shop, COUNT(*) AS n FROM sales {window};"))
    shown = []
    # The session of 40 is open until 53, and takes what comes at that moment.
    for number, (second, clock) in enumerate([(53, 40), (42, 53), (60, 53)], 1):
        sales(lake, [second], number, clock)
        drain(settings, "shop")
        assert_correct(lake, "shop")
        shown.append(sorted(reader.read_rows(lake.table("over"), columns=["n"])["n"].to_pylist()))
    assert shown == [[2], [2], [2, 2]]


@pytest.mark.parametrize(("window", "failing"), [("TUMBLING (SIZE 10 SECONDS", 3), ("SESSION (5 SECONDS", 2)])
def test_a_row_that_is_late_does_not_fail(settings: Settings, lake: LakeLayout, window: str, failing: int) -> None:
    call = f"COUNT(CAST(shop AS INT)) AS n FROM sales WINDOW {window}, GRACE PERIOD 3 SECONDS) GROUP BY shop"
    list(Interpreter(settings, "shop").run(f"CREATE TABLE v AS SELECT shop, {call};"))
    drain(settings, "shop")
    assert reader.read_rows(lake.table("v__dead_letters")).num_rows == failing
