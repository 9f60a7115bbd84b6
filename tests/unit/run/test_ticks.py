"""A run writes the time to the clock of its lake: rows leave the views that ask for it, and recomputations agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import rows
from tests.support.invariants import assert_correct

DAY = """
CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 HOUR');
CREATE STREAM visits (id INT KEY, at TIMESTAMP);
CREATE MATERIALIZED VIEW day AS SELECT id, at FROM visits WHERE at > NOW() - INTERVAL '1' DAY;
CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM day;
INSERT INTO visits VALUES (1, '2024-05-01T10:00'), (2, '2024-05-02T10:00'), (3, '2024-05-02T12:00');
"""


def test_rows_leave_when_their_time_is_over(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(Interpreter(settings, "shop").run(DAY))
    found = []
    for hours in (0, 23, 25):
        now = datetime(2024, 5, 2, 10, 30, tzinfo=UTC) + timedelta(hours=hours)
        monkeypatch.setattr("strandline.jobs.ingest.produce.utc_now", lambda now=now: now)
        drain(settings, "shop")
        assert_correct(lake, "shop")
        assert [row[1] for row in rows(lake, "clock")] == [now]
        found.append((sorted(row[0] for row in rows(lake, "day")), rows(lake, "counted")))
    assert found == [([2, 3], [(2,)]), ([2, 3], [(2,)]), ([3], [(1,)])]


LATEST = """
CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 HOUR');
CREATE STREAM visits (id INT KEY, shop VARCHAR, at TIMESTAMP);
CREATE OR REPLACE MATERIALIZED VIEW latest WITH (RETENTION = '{}', TIMESTAMP = 'at')
    AS SELECT shop, MAX(at) AS at, COUNT(*) AS n FROM visits GROUP BY shop;
"""
VISITS = "INSERT INTO visits VALUES (1, 'a', '2024-05-01T10:00'), (2, 'b', '2024-05-02T10:00');"


def test_the_rows_of_a_view_leave_after_its_retention(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that left comes back with all that it counted; another RETENTION is another query, and a replacement."""

    def at(hour: int, *statements: str) -> list[tuple[object, ...]]:
        now = datetime(2024, 5, 2, 10, 30, tzinfo=UTC) + timedelta(hours=hour)
        monkeypatch.setattr("strandline.jobs.ingest.produce.utc_now", lambda: now)
        list(Interpreter(settings, "shop").run("\n".join(statements)))
        drain(settings, "shop")
        assert_correct(lake, "shop")
        return sorted((shop, n) for shop, _, n in rows(lake, "latest"))

    assert at(0, LATEST.format("1 DAY"), VISITS) == [("b", 1)]
    assert at(25) == []
    assert at(26, "INSERT INTO visits VALUES (3, 'a', '2024-05-03T09:00');") == [("a", 2)]
    assert at(27, LATEST.format("2 DAYS")) == [("a", 2), ("b", 1)]
    assert at(27, LATEST.format("2 DAYS")) == [("a", 2), ("b", 1)], "said again, it is the same view"
    assert at(50) == [("a", 2)]


def test_the_time_of_this_machine_fits_into_a_record(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(DAY))
    before = datetime.now(UTC)
    drain(settings, "shop")
    ((_, now),) = rows(lake, "clock")
    assert before - timedelta(milliseconds=1) < now <= datetime.now(UTC)
