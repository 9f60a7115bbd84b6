"""Every drill is green on the shipped pipelines: each view of each, by each scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from strandline.jobs.cli.demo import PIPELINES
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.recovery.scenarios import SCENARIOS, plan_drills, run_drill
from tests.support.example_lakes import example_lake
from tests.support.examples import AT_LENGTH

_CHOSEN: Final = [each.name for each in SCENARIOS if AT_LENGTH or each.name != "killed-driver"]
"""A killed driver is four seconds for each view."""


@pytest.mark.parametrize("file", PIPELINES, ids=[each.stem for each in PIPELINES])
def test_an_example_recovers_from_everything(settings: Settings, file: Path) -> None:
    example_lake(file, settings)
    plan = plan_drills(settings, scenarios=_CHOSEN)
    results = [run_drill(settings, drill) for drill in plan]
    assert [(each.drill, each.view, each.why) for each in results if not each.passed] == []
    assert {each.drill for each in results} == set(_CHOSEN)
