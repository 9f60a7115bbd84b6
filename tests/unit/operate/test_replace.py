"""CREATE OR REPLACE that a kill has cut short, said again: it goes on from there, or is done, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Message
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import (
    AFTER,
    BEFORE,
    BY_SHOP,
    NEXT,
    PIPELINE,
    READERS,
    events,
    made,
    replace_by_shop,
    rows,
)
from tests.support.shared_lake import replace_view, vouch
from tests.support.warm_process import exit_code
from tests.unit.operate.verify.damage import said

KILLED = -9
REPLACED = "table 'by_shop' replaced (pipeline 'views')"
UNCHANGED = "table 'by_shop' unchanged (pipeline 'views')"
ENDED = "; what had been begun of it is complete now"
OTHER = "; another definition of it has been begun, and the next run puts that in its place"

# Where a kill leaves nothing, the intent, and the next definition with the rest of the work.
ANEW = ("after-standby-build", "after-standby-proof", "before-replacement-intent:1")
GOES_ON = (
    "after-replacement-intent:1",
    "before-replacement-intent:2",
    "after-replacement-intent:2",
    "before-replacement-swap",
    "before-log-entry:2",
)
STANDS = ("after-log-entry:2", "after-replacement-swap", "after-replacement-definition", "after-replacement-clean-up")
ANSWERS = (
    dict.fromkeys(ANEW, REPLACED) | dict.fromkeys(GOES_ON, REPLACED + ENDED) | dict.fromkeys(STANDS, UNCHANGED + ENDED)
)
FEW = {"after-replacement-intent:1": False, "before-log-entry:2": True, "after-log-entry:2": True}


template, lake = begins_with(made)


def killed(lake: LakeLayout, place: str) -> None:
    assert exit_code(replace_by_shop, lake.root, failpoint=place) == KILLED


def say(settings: Settings, text: str) -> str:
    (answer,) = Interpreter(settings, PIPELINE).run(text)
    assert isinstance(answer, Message)
    return answer.text


def written(folder: Path, text: str) -> Path:
    file = folder / f"{PIPELINE}.sql"
    file.write_text(text)
    return file


def planned(file: Path, settings: Settings) -> str:
    return str(plan_apply(file, settings)).splitlines()[1].strip()


@pytest.mark.kill
@pytest.mark.parametrize(
    ("place", "applied"),
    [(place, applied) for place in ANSWERS for applied in (False, True)] if AT_LENGTH else FEW.items(),
)
def test_said_again_after_a_kill_it_goes_on_or_is_done(
    place: str, applied: bool, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    killed(lake, place)
    answer, again = ANSWERS[place], NEXT.replace("\n  SELECT", " SELECT")  # other words, and the same meaning
    if applied:
        file = written(tmp_path, again + READERS)
        assert planned(file, settings).endswith("what has been begun of it comes to its end") == (place not in ANEW)
        assert planned(file, settings).startswith("unchanged" if place in STANDS else "replace")
        assert str(apply(file, settings)).splitlines()[0] == answer
    else:
        assert say(settings, again) == answer
    assert rows(lake, "by_shop") == AFTER
    assert intents.find_replacement("by_shop", lake) is None
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["by_shop", "large", "most", "sales"]
    assert say(settings, again) == UNCHANGED
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == AFTER
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
def test_another_definition_said_after_a_kill_is_refused_once(
    settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    """It was checked against what stood before: what had been begun comes first, and is named."""
    killed(lake, "before-replacement-swap")
    other = NEXT.replace("qty > 1", "qty > 2")
    assert planned(written(tmp_path, other), settings).endswith(
        "; another definition of it has been begun, and comes first: then say this one again"
    )
    with pytest.raises(RefreshFailed, match="'by_shop' was dropped or got another definition meanwhile"):
        say(settings, other)
    assert rows(lake, "by_shop") == AFTER
    assert say(settings, other) == REPLACED
    assert rows(lake, "by_shop") == [("a", 1, 5, 5)]
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
def test_another_one_that_cannot_be_ended_is_no_matter(settings: Settings, lake: LakeLayout) -> None:
    """A row for which it has no value came after the kill: it is given up, and all is as it was."""
    begun = NEXT.replace("MAX(qty) AS most", "MAX(10 / (qty - 9)) AS most")
    assert exit_code(replace_view, lake.root, begun, failpoint="before-replacement-swap") == KILLED
    events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
    vouch(lake)
    assert say(settings, NEXT) == REPLACED
    assert rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 2, 11, 9)]
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
def test_the_former_definition_said_after_a_kill_tells_of_the_next_one(
    settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    killed(lake, "after-replacement-intent:1")
    assert planned(written(tmp_path, BY_SHOP), settings) == f"unchanged table 'by_shop'{OTHER}"
    assert say(settings, BY_SHOP) == UNCHANGED + OTHER
    assert rows(lake, "by_shop") == BEFORE
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == AFTER


@pytest.mark.kill
@pytest.mark.parametrize("place", ["after-replacement-intent:1", "after-replacement-swap"])
def test_why_rows_were_not_proved_outlives_the_process_that_found_out(
    place: str, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    sales = lake.table("sales")
    assert isinstance(sales, Path)
    said(sales, digest="0" * 32 + ":4")
    killed(lake, place)
    why = "'sales' does not read at version 0: verify 'sales'"
    if place == "after-replacement-intent:1":
        assert f"; its rows will not be proved: {why}; " in planned(written(tmp_path, NEXT), settings)
    assert say(settings, NEXT).endswith(f"{ENDED}; its rows are not proved: {why}")


@pytest.mark.kill
def test_an_owner_said_after_a_kill_ends_the_replacement_first(settings: Settings, lake: LakeLayout) -> None:
    """Otherwise the end of the replacement would bring the former owner back."""
    killed(lake, "after-log-entry:2")
    owned = NEXT.replace("by_shop AS", "by_shop WITH (OWNER = 'team:shops') AS")
    assert say(settings, owned) == REPLACED + ENDED
    drain(settings, PIPELINE)
    found = Catalog(lake).get("by_shop")
    assert found.options["OWNER"]  # type: ignore[union-attr]
    assert rows(lake, "by_shop") == AFTER


@pytest.mark.kill
def test_a_view_without_rows_said_again(settings: Settings, lake: LakeLayout) -> None:
    """Nothing decides but the intent: there is no table that could be swapped."""
    text = "CREATE OR REPLACE TABLE later AS SELECT shop, MAX(qty) AS most FROM sales GROUP BY shop;"
    say(settings, text.replace("MAX", "MIN"))
    assert exit_code(replace_view, lake.root, text, failpoint="after-replacement-intent:1") == KILLED
    assert say(settings, text) == f"table 'later' replaced (pipeline 'views'){ENDED}"
    assert reader.head(lake.table("later")) is None
    drain(settings, PIPELINE)
    assert rows(lake, "later") == [("a", 5), ("b", 2), ("c", 1)]
