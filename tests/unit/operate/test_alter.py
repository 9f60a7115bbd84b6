"""ALTER … ADD COLUMN that a kill has cut short, said again or applied as a file: it goes on or is done, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.apply import apply, plan_apply
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import PIPELINE, SHOPS, alter, made, rows
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.warm_process import exit_code

KILLED = -9
NEW = [("a", "Anna", None, None), ("b", "Bert", None, None)]


template, lake = begins_with(made)


@pytest.mark.kill
@pytest.mark.parametrize("place", ["after-replacement-intent:1", "after-log-entry:1"])
def test_said_again_after_a_kill_it_is_done(place: str, settings: Settings, lake: LakeLayout) -> None:
    assert exit_code(alter, lake.root, failpoint=place) == KILLED
    alter(lake.root)
    assert rows(lake, "shops") == NEW
    assert intents.find_replacement("shops", lake) is None
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
@pytest.mark.parametrize(("place", "outcome"), [("after-log-entry:1", "altered"), ("after-log-entry:2", "unchanged")])
def test_a_file_with_the_columns_that_is_applied_after_a_kill(
    place: str, outcome: str, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    assert exit_code(alter, lake.root, failpoint=place) == KILLED
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(SHOPS.replace("name VARCHAR", "name VARCHAR, town VARCHAR, size INT"))
    [step, *_] = plan_apply(file, settings).steps
    assert str(step).startswith({"altered": "alter     ", "unchanged": "unchanged "}[outcome])
    assert str(step).endswith("; what has been begun of it comes to its end")
    [change] = apply(file, settings).changes
    assert str(change) == f"table 'shops' {outcome} (pipeline 'shop'); what had been begun of it is complete now"
    assert rows(lake, "shops") == NEW
    assert intents.find_replacement("shops", lake) is None
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)
