"""Views that share stages are replaced while a run is at work, by processes that die, and at random."""

from __future__ import annotations

import random

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import PIPELINE, events
from tests.support.running import polled, running
from tests.support.shared_lake import SELECTS, made, replace_view, rows, shared_by, shared_in, statement, vouch
from tests.support.waiting import wait_until
from tests.support.warm_process import exit_code

KILLED = -9

# The inner aggregate that `c` has alone goes, and one that nobody has comes.
NEXT = statement("c", "items")
BEFORE = [("a", 1), ("b", 1), ("c", 1)]
AFTER = [("x", 3), ("y", 1)]
LATER = [("x", 4), ("y", 1)]

# Where a kill leaves the former definition, and where the next one: the commit of the swap is what decides.
BEFORE_THE_SWAP = ("after-standby-build", "after-standby-proof", "after-replacement-intent:1", "after-adoption")
AFTER_THE_SWAP = ("after-replacement-swap", "after-replacement-definition", "after-replacement-clean-up")
NEXT_TO_THE_SWAP = ("after-adoption", "after-replacement-definition")


template, lake = begins_with(made)


def assert_tidy(lake: LakeLayout) -> None:
    """Views equal their SQL, and the lake has their tables, the shared ones that are read, and no others."""
    assert_correct(lake, PIPELINE)
    assert intents.begun_replacements(lake) == []
    there = {path.name for path in on_disk(lake.tables).iterdir()} - set(Catalog(lake).names())
    views = [each for each in Catalog(lake).pipeline(PIPELINE) if isinstance(each, View)]
    inner = {name for name in there if any(name.startswith(f"{each.name}__stage_") for each in views)}
    assert there - inner == shared_by(lake)
    assert {name.partition("__")[0] for name in inner} <= {v.name for v in views if v.maintenance.state == "full"}


def test_a_run_takes_it_and_what_shares_the_stages_sees_nothing(settings: Settings, lake: LakeLayout) -> None:
    others = {name: rows(lake, name) for name in ("a", "b")}
    with (
        running(settings, lake, PIPELINE),
        polled(settings, "SELECT k, n FROM c ORDER BY k") as seen,
        polled(settings, "SELECT k, n FROM b ORDER BY k") as beside,
    ):
        list(Interpreter(settings, PIPELINE).run(NEXT))
        assert rows(lake, "c") == AFTER
        assert {name: rows(lake, name) for name in others} == others
        events(lake, [{"shop": "c", "item": "x", "qty": 9}], first=4, epoch=1)
        wait_until(lambda: rows(lake, "c") == LATER and rows(lake, "b") == [("x", 3), ("y", 1)], "it does not come")
    assert [each for each in seen if each not in (BEFORE, AFTER, LATER)] == []
    assert [each for each in beside if each not in (others["b"], [("x", 3), ("y", 1)])] == []
    assert_tidy(lake)


@pytest.mark.kill
@pytest.mark.parametrize("place", [*BEFORE_THE_SWAP, *AFTER_THE_SWAP] if AT_LENGTH else NEXT_TO_THE_SWAP)
def test_a_kill_leaves_the_former_or_the_next_definition_whole(
    place: str, settings: Settings, lake: LakeLayout
) -> None:
    assert exit_code(replace_view, lake.root, NEXT, failpoint=place) == KILLED
    assert rows(lake, "c") == (BEFORE if place in BEFORE_THE_SWAP else AFTER)
    events(lake, [{"shop": "c", "item": "x", "qty": 9}], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)  # ends what was begun
    begun = place not in ("after-standby-build", "after-standby-proof")
    assert rows(lake, "c") == (LATER if begun else [("a", 1), ("b", 1), ("c", 2)])
    assert_correct(lake, PIPELINE)
    list(Interpreter(settings, PIPELINE).run(NEXT))
    assert rows(lake, "c") == LATER
    assert_tidy(lake)


@pytest.mark.kill
def test_said_again_after_a_kill_it_goes_on(settings: Settings, lake: LakeLayout) -> None:
    assert exit_code(replace_view, lake.root, NEXT, failpoint="after-adoption") == KILLED
    list(Interpreter(settings, PIPELINE).run(NEXT))
    assert rows(lake, "c") == AFTER
    assert_tidy(lake)


@pytest.mark.parametrize("seed", range(40 if AT_LENGTH else 2))
def test_random_replacements_of_views_that_share(seed: int, settings: Settings, lake: LakeLayout) -> None:
    """After each step every view is what its SQL gives, and no table is there that nobody reads."""
    pick = random.Random(seed)
    session, at = Interpreter(settings, PIPELINE), 4
    for epoch in range(1, 12 if AT_LENGTH else 6):
        name, select = pick.choice("abcd"), pick.choice(list(SELECTS))
        if pick.random() < 0.15 and Catalog(lake).find(name) is not None:
            list(session.run(f"DROP VIEW {name}"))
        else:
            list(session.run(statement(name, select, pick.choice(("shared", "shared", "full")))))
        if all(lake.table(each.name).exists() for each in Catalog(lake).pipeline(PIPELINE)):
            assert_tidy(lake)
        new = [{"shop": pick.choice("abcd"), "item": pick.choice("xyz"), "qty": pick.randint(0, 3)} for _ in range(3)]
        events(lake, new, at, epoch)
        vouch(lake)
        at += len(new)
        if pick.random() < 0.7:
            drain(settings, PIPELINE)
            assert_tidy(lake)
    drain(settings, PIPELINE)
    assert_tidy(lake)
    assert shared_in(lake) == shared_by(lake)
