"""The groups of views that Spark's tasks refresh: what hangs together stays together."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.run import refresh_views
from strandline.jobs.run.refresh_views import Refreshed, _Task, groups, run_task
from strandline.jobs.run.schedule import Levels, RefreshUnit
from strandline.state_store.layout import LakeLayout

LOG = "log"


def item(name: str, *inputs: str, target: str | None = None) -> RefreshUnit:
    return RefreshUnit(name, target or name, (), inputs, "f")


def names(found: Sequence[Sequence[Sequence[RefreshUnit]]]) -> set[tuple[tuple[str, ...], ...]]:
    return {tuple(tuple(each.name for each in level) for level in group) for group in found}


def test_views_that_read_each_other_are_one_group_in_their_levels() -> None:
    levels = [[item("a", LOG), item("b", LOG)], [item("c", "a", LOG)], [item("d", "c", "b"), item("e", "other")]]
    assert names(groups(levels, 8)) == {(("a", "b"), ("c",), ("d",)), ((), (), ("e",))}


def test_a_log_that_all_read_does_not_hold_them_together() -> None:
    assert names(groups([[item("a", LOG), item("b", LOG)]], 8)) == {(("a",),), (("b",),)}


def test_queries_into_one_stream_are_one_group() -> None:
    levels = [[item("q1", "x", target="s"), item("q2", "y", target="s")]]
    assert names(groups(levels, 8)) == {(("q1", "q2"),)}


def test_there_are_not_more_groups_than_can_run_side_by_side() -> None:
    levels = [[item(name, LOG) for name in "abcde"], [item("f", "a")]]
    made = groups(levels, 2)
    assert len(made) == 2
    assert sorted(each.name for group in made for level in group for each in level) == list("abcdef")


def test_nothing_to_maintain_is_no_group() -> None:
    assert groups([], 4) == []


def test_a_worker_has_the_same_objects_in_each_task_of_a_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was made of a stage is kept with it from one epoch to the next."""
    seen: list[Levels] = []

    def refresh_all(_: RunContext, levels: Levels, __: frozenset[str]) -> Refreshed:
        seen.append(levels)
        return Refreshed((), {})

    monkeypatch.setattr(refresh_views, "refresh_all", refresh_all)
    context = RunContext(None, LakeLayout(tmp_path), "writer")
    for text in ("a", "b", "a", "b"):
        levels = pickle.dumps([[item(text, LOG)]])
        run_task(pickle.loads(pickle.dumps(_Task(context, 100, 1, (None, 0), levels, frozenset()))))
    assert seen[0] is seen[2]
    assert seen[1] is seen[3]
    assert [[unit.name for unit in level] for level in seen[1]] == [["b"]]
