"""The pipeline that the pictures show: one expectation of each kind does what it says, without Dagster."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import checked_pipeline


@pytest.fixture
def lake(tmp_path: Path) -> LakeLayout:
    return checked_pipeline.made(tmp_path)


def rows(lake: LakeLayout, table: str, *columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in reader.read_rows(lake.table(table), columns=columns).to_pylist())


def test_a_row_is_kept_out_a_warning_passes_and_what_is_blocked_waits(lake: LakeLayout) -> None:
    settings = load_settings(lake=lake.root)
    assert not drain(settings, checked_pipeline.PIPELINE).held
    assert rows(lake, "best", "fare") == [(30,)]
    checked_pipeline.more(lake)
    assert list(drain(settings, checked_pipeline.PIPELINE).held) == ["earned"]
    assert rows(lake, "earned", "place", "fare") == [("Oslo", 30), ("Rome", 140)]
    assert rows(lake, "best", "fare") == [(30,)]
    ((reason,),) = rows(lake, "paid__dead_letters", "reason")
    assert reason == "breaks expect_column_values_to_not_be_null__fare of paid"
