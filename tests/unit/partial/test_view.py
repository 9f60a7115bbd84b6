"""A partial view at work: what is kept, what a change drops, what concurrent readers share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from strandline.jobs.functions.python import Library
from strandline.jobs.model.settings import Settings
from strandline.jobs.partial.pull import Key, Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.serve.terms import QueryBudget
from strandline.state_store.delta import log
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import VersionGone
from tests.support.on_disk import data_files, on_disk
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.partial.shop import opened, plan_of, shop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot
    from tests.support.served_lake import ServedLake


@pytest.fixture
def served(settings: Settings) -> ServedLake:
    made = shop(settings, "joined", "against_all")
    made.append("info", [{"product": p, "category": c, "price": 1} for p, c in (("a", "x"), ("b", "y"), ("c", "y"))])
    made.append("visits", [{"id": 1, "product": product, "length": 5} for product in "abc"])
    refresh(made)
    return made


def refresh(served: ServedLake) -> None:
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


def visit(served: ServedLake, product: str) -> None:
    served.append("visits", [{"id": 1, "product": product, "length": 7}])
    refresh(served)


def clean(served: ServedLake, name: str) -> None:
    """Remove every file of a table that its newest version does not need, as vacuum does once they are old enough."""
    table = served.lake.table(name)
    version = log.newest_version(table)
    assert isinstance(table, Path)
    assert version is not None
    live = {log.inside(table, file) for file in read_snapshot(table, version).files}
    gone = [file for file in data_files(table) if file not in live]
    assert gone
    for file in gone:
        file.unlink()


class HeldUpqueries(Upqueries):
    """Upqueries that wait until they are let go, and are counted; or that fail."""

    def __init__(self, served: ServedLake, name: str) -> None:
        super().__init__(plan_of(served, name), served.lake, Library((), ()))
        self.begun, self.go = Event(), Event()
        self.asked: list[tuple[Key, ...]] = []
        self.error: Exception | None = None

    def rows(self, keys: Sequence[Key], cut: ConsistentSnapshot, spent: QueryBudget | None = None) -> pa.Table:
        self.asked.append(tuple(keys))
        self.begun.set()
        assert self.go.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        return super().rows(keys, cut, spent)


def held(served: ServedLake) -> tuple[PartialView, HeldUpqueries]:
    upqueries = HeldUpqueries(served, "joined")
    view = PartialView(plan_of(served, "joined"), served.lake, upqueries, 1 << 20)
    view.advance()
    return view, upqueries


def counted(view: PartialView, key: str) -> Any:
    ((row,),) = view.read([(key,)]).rows
    return row["n"]


def test_a_key_is_computed_once_and_then_kept(served: ServedLake) -> None:
    view = opened(served, "joined")
    assert [counted(view, "y"), counted(view, "y"), counted(view, "x")] == [2, 2, 1]
    counts = view.counts
    assert (counts.hits, counts.misses, counts.upqueries, counts.kept) == (1, 2, 2, 2)
    assert view.kept([("x",), ("y",)]) is not None
    assert view.kept([("x",), ("z",)]) is None


def test_that_a_key_has_no_rows_is_remembered(served: ServedLake) -> None:
    view = opened(served, "joined")
    assert view.read([("none",)]).rows == view.read([("none",)]).rows == [[]]
    assert view.counts.upqueries == 1


def test_several_missing_keys_are_one_upquery(served: ServedLake) -> None:
    view = opened(served, "joined")
    assert [len(rows) for rows in view.read([("x",), ("none",), ("y",), ("x",)]).rows] == [1, 0, 1, 1]
    assert view.counts.upqueries == 1


def test_a_change_drops_its_keys_and_no_others(served: ServedLake) -> None:
    view = opened(served, "joined")
    view.read([("x",), ("y",), ("none",)])
    visit(served, "a")
    assert view.advance()
    assert view.counts.dropped == 1
    assert view.kept([("y",), ("none",)]) is not None
    assert view.kept([("x",)]) is None
    assert counted(view, "x") == 2


def test_a_change_of_a_key_that_is_not_kept_is_ignored(served: ServedLake) -> None:
    view = opened(served, "joined")
    view.read([("x",)])
    visit(served, "b")
    view.advance()
    assert view.counts.dropped == 0
    assert view.kept([("x",)]) is not None


def test_a_row_that_moves_to_another_key_drops_both(served: ServedLake) -> None:
    view = opened(served, "joined")
    view.read([("x",), ("y",)])
    served.append("info", [{"product": "c", "category": "x", "price": 1}])
    refresh(served)
    view.advance()
    assert view.counts.dropped == 2
    assert [counted(view, "x"), counted(view, "y")] == [2, 1]


def test_a_change_of_hidden_columns_alone_drops_its_key(settings: Settings) -> None:
    """An event that repeats a row of a keyed source changes nothing of it that is seen but the time of the row."""
    served = shop(settings, "newest")
    view = None
    for _ in range(2):
        served.append("info", [{"product": "a", "category": "x", "price": 1}])
        refresh(served)
        view = view or opened(served, "newest")
        view.advance()
        assert view.read([("x",)]).rows == [[{"category": "x", "newest": served.last_event_time // 1000}]]


def test_a_version_that_is_gone_drops_all(served: ServedLake) -> None:
    """A reader that slept while the files of its cut were cleaned up does not stand still for ever."""
    view = opened(served, "joined")
    view.read([("x",), ("none",)])
    served.append("visits", [{"id": 1, "product": "a", "length": 7}])
    served.append("info", [{"product": p, "category": "y", "price": 2} for p in "abc"])
    refresh(served)
    clean(served, "info")
    assert view.advance()
    assert view.counts.dropped == 2
    assert [view.read([("x",)]).rows, counted(view, "y")] == [[[]], 4]


def test_compaction_of_an_input_drops_nothing(served: ServedLake) -> None:
    view = opened(served, "joined")
    view.read([("x",), ("y",)])
    visit(served, "unknown")
    visits = on_disk(served.lake.table("visits"))
    before = log.newest_version(visits)
    DeltaTable(visits).optimize.compact()
    view.advance()
    assert view.cut is not None
    assert view.cut.versions["visits"] == log.newest_version(visits) != before
    assert view.counts.dropped == 0


def test_a_change_that_leads_to_no_key_drops_all(served: ServedLake) -> None:
    view = opened(served, "against_all")
    view.read([("a",), ("b",)])
    visit(served, "c")
    view.advance()
    assert view.counts.dropped == 2


def test_answers_stay_at_the_cut_until_it_advances(served: ServedLake) -> None:
    view = opened(served, "joined")
    first = view.read([("x",)]).cut.versions
    visit(served, "a")
    assert counted(view, "y") == 2
    assert view.read([("y",), ("x",)]).cut.versions == first
    view.advance()
    assert view.read([("y",), ("x",)]).cut.versions != first
    assert not view.advance()


def test_an_input_that_is_made_anew_drops_all(served: ServedLake, settings: Settings) -> None:
    view = opened(served, "joined")
    view.read([("x",), ("y",)])
    again = shop(Settings(lake=settings.lake.parent / "other"), "joined")
    again.append("info", [{"product": "a", "category": "x", "price": 1}])
    for _ in range(4):
        again.append("visits", [{"id": 1, "product": "a", "length": 1}])
    refresh(again)
    on_disk(served.lake.table("visits")).rename(on_disk(settings.lake.parent / "aside"))
    on_disk(again.lake.table("visits")).rename(on_disk(served.lake.table("visits")))
    view.advance()
    assert view.counts.dropped == 2
    assert counted(view, "x") == 4


def test_the_least_recently_read_key_goes_first(served: ServedLake) -> None:
    view = opened(served, "joined", 800)
    for key in ("x", "y", "x", "none", "more"):
        view.read([(key,)])
    assert view.counts.evictions > 0
    assert view.counts.bytes <= 800
    assert view.kept([("y",)]) is None
    assert view.kept([("more",)]) is not None


def test_concurrent_readers_of_a_missing_key_share_one_upquery(served: ServedLake) -> None:
    view, upqueries = held(served)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(counted, view, "y")
        assert upqueries.begun.wait(PATIENCE_SECONDS)
        others = [pool.submit(counted, view, "y") for _ in range(7)]
        while view.counts.shared < 7:
            assert not any(each.done() for each in others)
        upqueries.go.set()
        assert [each.result() for each in (first, *others)] == [2] * 8
    assert upqueries.asked == [(("y",),)]


def test_a_key_that_is_touched_while_it_is_computed_is_not_kept(served: ServedLake) -> None:
    """Who came before the change gets the rows at his cut; who comes after it gets the new ones, and only they stay."""
    view, upqueries = held(served)
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(view.read, [("x",)])
        assert upqueries.begun.wait(PATIENCE_SECONDS)
        cut = view.cut
        visit(served, "a")
        view.advance()
        after = pool.submit(view.read, [("x",)])
        while len(upqueries.asked) < 2:
            assert not after.done()
        upqueries.go.set()
        assert (before.result().rows[0][0]["n"], before.result().cut) == (1, cut)
        assert after.result().rows[0][0]["n"] == 2
    kept = view.kept([("x",)])
    assert kept is not None
    assert kept.rows[0][0]["n"] == 2


def test_a_key_that_is_not_touched_while_it_is_computed_is_kept_at_the_new_cut(served: ServedLake) -> None:
    view, upqueries = held(served)
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(view.read, [("y",)])
        assert upqueries.begun.wait(PATIENCE_SECONDS)
        visit(served, "a")
        view.advance()
        upqueries.go.set()
        assert before.result().rows[0][0]["n"] == 2
    kept = view.kept([("y",)])
    assert kept is not None
    assert kept.cut == view.cut != before.result().cut


def test_an_upquery_that_fails_fails_for_all_who_wait_and_the_next_one_is_made_anew(served: ServedLake) -> None:
    view, upqueries = held(served)
    upqueries.error = VersionGone("gone")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(view.read, [("x",)])
        assert upqueries.begun.wait(PATIENCE_SECONDS)
        second = pool.submit(view.read, [("x",)])
        while view.counts.shared < 1:
            assert not second.done()
        upqueries.go.set()
        for each in (first, second):
            with pytest.raises(VersionGone):
                each.result()
    upqueries.error = None
    assert counted(view, "x") == 1
