"""A pipeline whose expectations pass, warn, block and keep a row out; without a topic of its own it needs no JVM."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import events

PIPELINE: Final = "fares"
_RIDES: Final = "CREATE STREAM rides (id BIGINT KEY, place VARCHAR, fare INT) WITH (KAFKA_TOPIC = 'rides');"
_SQL: Final = """
-- Rides with what was paid for them.
CREATE MATERIALIZED VIEW paid AS SELECT place, fare FROM rides;
-- What each place has earned.
CREATE MATERIALIZED VIEW earned AS SELECT place, COUNT(*) AS rides, SUM(fare) AS fare FROM paid GROUP BY place;
-- The best of them.
CREATE MATERIALIZED VIEW best AS SELECT MAX(fare) AS fare FROM earned;
"""
_YAML: Final = """
paid:
  owner: team:fares
  expect:
    - expect_column_values_to_not_be_null: {column: fare}
      quarantine: true
earned:
  owner: team:fares
  expect:
    - expect_column_values_to_not_be_null: {column: place}
    - expect_column_values_to_be_between: {column: rides, max_value: 2}
      severity: warn
    - expect_column_values_to_be_between: {column: fare, max_value: 100}
      blocking: true
"""
FIRST: Final = [{"id": 1, "place": "Rome", "fare": 20}, {"id": 2, "place": "Oslo", "fare": 30}]
SECOND: Final[list[dict[str, object]]] = [
    *({"id": 3 + number, "place": "Rome", "fare": 40} for number in range(3)),
    {"id": 6, "place": "Oslo", "fare": None},
]


def made(folder: Path) -> LakeLayout:
    """The lake in a folder, with its first events and nothing refreshed."""
    settings = load_settings(lake=folder / "lake")
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "rides").run(_RIDES))
    (folder / f"{PIPELINE}.sql").write_text(_SQL)
    (folder / f"{PIPELINE}.yaml").write_text(_YAML)
    apply(folder / f"{PIPELINE}.sql", settings)
    assert Catalog(lake).pipeline(PIPELINE)
    events(lake, "rides", FIRST)
    return lake


def more(lake: LakeLayout) -> None:
    """The second events: a place earns more than is expected, and a ride has no fare."""
    events(lake, "rides", SECOND, first=len(FIRST), epoch=1)


def quiet(lake: LakeLayout, number: int) -> None:
    """Two more rides, each of a place of its own, which meet every expectation.

    Args:
        number: from 0 on, one for each call.
    """
    first = len(FIRST) + len(SECOND) + 2 * number
    rides = [{"id": first + 1 + each, "place": f"Place {first + each}", "fare": 10 + each} for each in (0, 1)]
    events(lake, "rides", rides, first=first, epoch=2 + number)


def environment(folder: Path) -> dict[str, str]:
    """Of Dagster over the lake."""
    return {
        **os.environ,
        "STRANDLINE_LAKE": str(folder / "lake"),
        "DAGSTER_HOME": str(folder / "home"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
