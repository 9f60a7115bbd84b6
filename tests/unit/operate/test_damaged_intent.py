"""A replacement whose intent does not read back: nobody can say which definition stands, so nobody guesses, and what is
typed decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.operate.watch import alerts
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Message
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import AFTER, BEFORE, BY_SHOP, NEXT, PIPELINE, made, replace_by_shop, rows
from tests.support.shared_lake import replace_view
from tests.support.warm_process import exit_code

BEGUN, SWAPPED, NAMED = "after-replacement-intent:2", "after-replacement-swap", "after-replacement-definition"
PRESENT = BY_SHOP.replace("CREATE TABLE", "CREATE OR REPLACE TABLE")


template, lake = begins_with(made)


def damaged(lake: LakeLayout, place: str) -> Path:
    """The intent of a replacement that was killed there, with one bit flipped."""
    assert exit_code(replace_by_shop, lake.root, failpoint=place) == -9
    return flipped(lake)


def flipped(lake: LakeLayout) -> Path:
    [file] = (on_disk(lake.catalog) / "replacing").glob("*.json")
    file.write_bytes(file.read_bytes().replace(b'"epoch"', b'"epoci"'))
    return file


def wrong(settings: Settings) -> list[str]:
    """The tables that verify finds broken; but for the events, whose table this lake has from another one."""
    return [each.table for each in verify(settings, deep=True) if each.ok is False and each.table != "sales"]


def say(settings: Settings, text: str) -> str:
    (answer,) = Interpreter(settings, PIPELINE).run(text)
    assert isinstance(answer, Message)
    return answer.text


@pytest.mark.kill
@pytest.mark.parametrize("place", [BEGUN, SWAPPED, NAMED])
@pytest.mark.parametrize("applied", [False, True])
def test_the_next_definition_said_again_stands(
    place: str, applied: bool, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    file = damaged(lake, place)
    for asks in (lambda: say(settings, "SELECT * FROM by_shop;"), lambda: drain(settings, PIPELINE)):
        with pytest.raises(CorruptState, match="the intent of its replacement does not read back") as caught:
            asks()
        assert "CREATE OR REPLACE" in (caught.value.hint or "")
    assert [each.subject for each in alerts(settings, 1) if each.kind == "broken"] == ["by_shop"]
    assert "by_shop" in wrong(settings)
    if applied:
        script = tmp_path / f"{PIPELINE}.sql"
        script.write_text(NEXT)
        plan_apply(script, settings)
        assert file.exists(), "a plan changes nothing"
        apply(script, settings)
    else:
        assert say(settings, NEXT) == "table 'by_shop' repaired (pipeline 'views')"
    assert not file.exists()
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == AFTER
    assert wrong(settings) == []
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
def test_the_former_definition_stands_where_it_has_the_rows(settings: Settings, lake: LakeLayout) -> None:
    file = damaged(lake, BEGUN)
    assert "'by_shop' repaired" in say(settings, PRESENT)
    assert not file.exists()
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == BEFORE
    assert wrong(settings) == []


@pytest.mark.kill
def test_the_former_definition_is_refused_where_the_next_one_has_the_rows(settings: Settings, lake: LakeLayout) -> None:
    file = damaged(lake, SWAPPED)
    with pytest.raises(NotSupported, match="by another definition"):
        say(settings, PRESENT)
    assert file.exists()
    say(settings, NEXT)
    assert rows(lake, "by_shop") == AFTER


@pytest.mark.kill
def test_a_third_definition_takes_the_place_of_either(settings: Settings, lake: LakeLayout) -> None:
    file = damaged(lake, SWAPPED)
    third = NEXT.replace("MAX(qty) AS most", "MIN(qty) AS least")
    assert "'by_shop' repaired" in say(settings, third)
    assert not file.exists()
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 1, 2, 2)]
    assert wrong(settings) == []


@pytest.mark.kill
def test_a_view_whose_intent_is_damaged_can_be_dropped(settings: Settings, lake: LakeLayout) -> None:
    text = "CREATE OR REPLACE MATERIALIZED VIEW large AS SELECT shop, n FROM by_shop WHERE n > 0;"
    assert exit_code(replace_view, lake.root, text, failpoint=SWAPPED) == -9
    file = flipped(lake)
    say(settings, "DROP VIEW large;")
    assert not file.exists()
    say(settings, text)
    drain(settings, PIPELINE)
    assert rows(lake, "large") == [("a", 2), ("b", 1), ("c", 1)]
    assert wrong(settings) == []
