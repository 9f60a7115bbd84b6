"""Rows that break an expectation with quarantine, through the life of a lake: kept aside, and back when corrected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.invariants import assert_correct
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.session.statements import message

FARE = "{expect_column_values_to_be_between: {column: fare, min_value: 0}, quarantine: true}"
CITY = "{expect_column_values_to_not_be_null: {column: city}, quarantine: true}"
TOTAL = "{expect_column_values_to_be_between: {column: total, max_value: 100}, quarantine: true}"
SHOP = f"""
CREATE TABLE rides (id INT PRIMARY KEY, city VARCHAR, fare INT) WITH (KAFKA_TOPIC = 'rides', PARTITIONS = 1);
CREATE TABLE fair WITH (EXPECT = '[{FARE}, {CITY}]') AS SELECT id, city, fare FROM rides WHERE fare <> 13;
CREATE TABLE totals WITH (EXPECT = '[{TOTAL}]') AS SELECT city, SUM(fare) AS total FROM fair GROUP BY city;
"""
STRICTER = f"""CREATE OR REPLACE TABLE totals WITH (EXPECT = '[{TOTAL.replace("100", "50")}]')
  AS SELECT city, SUM(fare) AS total FROM fair GROUP BY city;"""
_CHILD = """
import sys
from pathlib import Path
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
list(Interpreter(Settings(lake=Path(sys.argv[1])), "shop").run(sys.argv[2]))
"""
BETWEEN, NOT_NULL = "expect_column_values_to_be_between__fare", "expect_column_values_to_not_be_null__city"

Ride = tuple[int, str | None, int | None]


class Rides:
    """The lake and the events that came."""

    def __init__(self, settings: Settings, lake: LakeLayout) -> None:
        self.settings, self.lake, self.epochs, self.offset = settings, lake, 0, 0
        list(Interpreter(settings, "shop").run(SHOP))

    def came(self, *rides: Ride, gone: tuple[int, ...] = ()) -> None:
        """One commit of events and a drain, after which every table is what its SQL says."""
        rows: list[dict[str, Any]] = [
            {"id": key, "city": city, "fare": fare, "_tombstone": False} for key, city, fare in rides
        ]
        rows += [{"id": key, "_tombstone": True} for key in gone]
        lake_tables.events(self.lake, "rides__log", rows, self.offset, self.epochs)
        self.offset, self.epochs = self.offset + len(rows), self.epochs + 1
        drain(self.settings, "shop")
        assert_correct(self.lake, "shop")
        wrong = [each for each in verify(self.settings, ["fair", "totals"], deep=True) if each.ok is False]
        assert wrong == []

    def rows(self, view: str, *names: str) -> set[tuple[Any, ...]]:
        found = reader.read_rows(self.lake.table(view), columns=list(names)).to_pylist()
        return {tuple(row.values()) for row in found}

    def letters(self, view: str, name: str) -> dict[Any, str]:
        """{the value that the row has under `name`: the reason why it is kept out}."""
        rows = self.rows(f"{view}__dead_letters", "row", "reason")
        return {json.loads(row)[name]: reason for row, reason in rows}


@pytest.fixture
def rides(settings: Settings, lake: LakeLayout) -> Rides:
    return Rides(settings, lake)


def test_a_row_is_kept_out_while_it_breaks_an_expectation(rides: Rides) -> None:
    rides.came((1, "a", 10), (2, "a", -5), (3, None, 7), (4, "b", None))
    assert rides.rows("fair", "id", "fare") == {(1, 10)}, "a NULL does not pass WHERE fare <> 13"
    assert rides.letters("fair", "rows_id") == {
        2: f"breaks {BETWEEN} of fair",
        3: f"breaks {NOT_NULL} of fair",
    }
    rides.came((1, "a", -1), (2, "a", 5))
    assert rides.rows("fair", "id", "fare") == {(2, 5)}, "one was broken, one was mended"
    assert rides.letters("fair", "rows_id").keys() == {1, 3}
    rides.came((1, None, 4), gone=(3,))
    assert rides.letters("fair", "rows_id") == {1: f"breaks {NOT_NULL} of fair"}, "another reason, and one is deleted"
    rides.came((1, "b", 4), gone=(2,))
    assert rides.rows("fair", "id", "fare") == {(1, 4)}
    assert rides.letters("fair", "rows_id") == {}
    assert rides.rows("totals", "city", "total") == {("b", 4)}, "what reads the view never saw the others"


def test_a_row_that_the_query_leaves_out_breaks_nothing(rides: Rides) -> None:
    rides.came((1, None, 13), (2, None, None), (3, None, 1))
    assert rides.letters("fair", "rows_id").keys() == {3}


def test_a_group_is_kept_out_and_comes_back(rides: Rides) -> None:
    rides.came((1, "a", 60), (2, "a", 70), (3, "b", 1))
    assert rides.rows("totals", "city", "total") == {("b", 1)}
    assert rides.letters("totals", "rows_city") == {"a": "breaks expect_column_values_to_be_between__total of totals"}
    rides.came((1, "a", 20))
    assert rides.rows("totals", "city", "total") == {("a", 90), ("b", 1)}
    assert rides.letters("totals", "rows_city") == {}


def test_nothing_is_kept_aside_before_a_row_breaks_an_expectation(rides: Rides) -> None:
    rides.came((1, "a", 10))
    assert reader.head(rides.lake.table("fair__dead_letters")) is None
    assert rides.rows("fair", "id", "fare") == {(1, 10)}


def test_an_expectation_that_comes_later_replaces_the_view(rides: Rides) -> None:
    rides.came((1, "a", 60), (2, "b", 5), (3, "c", 120))
    assert rides.letters("totals", "rows_city").keys() == {"c"}
    assert "replaced" in message(Interpreter(rides.settings, "shop"), STRICTER)
    assert rides.rows("totals", "city", "total") == {("b", 5)}
    assert rides.letters("totals", "rows_city") == dict.fromkeys(
        "ac", "breaks expect_column_values_to_be_between__total of totals"
    )
    rides.came((1, "a", 50), (2, "b", 51))
    assert rides.rows("totals", "city", "total") == {("a", 50)}
    assert rides.letters("totals", "rows_city").keys() == {"b", "c"}


@pytest.mark.parametrize("step", ["after-replacement-definition", "after-replacement-clean-up"])
def test_a_replacement_that_is_killed_keeps_the_same_rows_aside(rides: Rides, step: str) -> None:
    rides.came((1, "a", 60), (2, "b", 5), (3, "c", 120))
    environment = os.environ | {"STRANDLINE_FAILPOINT": step}
    command = [sys.executable, "-c", _CHILD, str(rides.lake.root), STRICTER]
    assert subprocess.run(command, env=environment, check=False, timeout=PATIENCE_SECONDS).returncode == -signal.SIGKILL
    rides.came((4, "d", 1))
    assert rides.rows("totals", "city", "total") == {("b", 5), ("d", 1)}
    assert rides.letters("totals", "rows_city").keys() == {"a", "c"}
