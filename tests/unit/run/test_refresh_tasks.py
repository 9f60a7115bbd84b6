"""The groups of views that Spark's tasks refresh: what hangs together stays together."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.run.refresh_tasks import groups
from strandline.jobs.run.schedule import RefreshUnit

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
