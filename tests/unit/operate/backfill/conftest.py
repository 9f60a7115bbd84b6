"""A lake of counts by time, and how to plant a row in it that is wrong: whole in itself, and not what its SQL says."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.rules.stored import spec_of, stored_columns
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.arrow_table import ArrowTable, Row
from tests.support.event_commits import commit_events
from tests.support.on_disk import on_disk

NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
HOUR_MS = 3_600_000
PIPELINE = "views"

_SOURCE = "CREATE STREAM clicks (page VARCHAR, day DATE, ms INT) WITH (KAFKA_TOPIC = 'clicks', PARTITIONS = 1);"
_VIEWS = """
CREATE TABLE hourly AS SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page;
CREATE TABLE visits AS SELECT page, WINDOWSTART AS begun, WINDOWEND AS done, COUNT(*) AS n
  FROM clicks WINDOW SESSION (20 MINUTES) GROUP BY page;
CREATE MATERIALIZED VIEW daily AS SELECT page, day, AVG(ms) AS ms FROM clicks GROUP BY page, day;
CREATE MATERIALIZED VIEW both_ends AS SELECT day, day AS same, COUNT(*) AS n FROM clicks GROUP BY day;
CREATE MATERIALIZED VIEW per_page AS SELECT page, MAX(day) AS last, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE STREAM slow AS SELECT page, ms FROM clicks WHERE ms > 5;
CREATE MATERIALIZED VIEW busiest AS SELECT page, MAX(n) AS n FROM hourly GROUP BY page;
"""


def clicks(lake: LakeLayout, hours: range, first: int) -> None:
    """One commit of events: two of page a and one of b in each hour."""
    source = Catalog(lake).get("clicks")
    assert isinstance(source, Source)
    rows: list[dict[str, Any]] = []
    for hour in hours:
        for number, page in enumerate("aab"):
            at = NOON + dt.timedelta(hours=hour, minutes=10 * number)
            place = {"_partition": 0, "_offset": first + len(rows), "_timestamp": at, "_stream_time": at}
            rows.append({"page": page, "day": at.date(), "ms": hour + number, "_headers": None, **place})
    commit_events(lake, source, rows)


def plant(lake: LakeLayout, view: str, wrong: Callable[[Row], Row | None]) -> None:
    """One epoch of a view's table by which rows change as `wrong` says; None leaves a row as it is."""
    item = next(each for level in maintained([Catalog(lake).get(view)], Catalog(lake)) for each in level)
    stage = item.stages[-1]
    schema = pa.schema([(name, kind.arrow()) for name, kind in stored_columns(stage)])
    table = ArrowTable(lake.table(view), schema, spec_of(stage))
    head = reader.head(table.path)
    assert head is not None
    changed = [row for row in map(wrong, table.stored(head.version)) if row is not None]
    record = replace(head.record, epoch=head.record.epoch + 1, mode="delta", reason="planted by a test")
    table.apply(changed, lambda row: wrong(row) is not None, record)


@pytest.fixture(scope="session")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake whose views have taken in six hours, by two epochs."""
    settings = load_settings(lake=tmp_path_factory.mktemp("hours") / "lake")
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "clicks").run(_SOURCE))
    list(Interpreter(settings, PIPELINE).run(_VIEWS))
    clicks(lake, range(4), 0)
    drain(settings, PIPELINE)
    clicks(lake, range(4, 14), 12)
    drain(settings, PIPELINE)
    assert isinstance(settings.lake, Path)
    return settings.lake


@pytest.fixture
def lake(hours: Path, lake: LakeLayout) -> LakeLayout:
    shutil.copytree(hours, on_disk(lake.root), dirs_exist_ok=True)
    return lake


@pytest.fixture
def settings(settings: Settings, lake: LakeLayout) -> Settings:
    assert settings.lake == lake.root
    return settings
