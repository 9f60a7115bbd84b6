"""CREATE OR REPLACE of views that share stages: what is made, what is found, what goes, and what others see of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.errors import NameInUse, RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate import replace as operate_replace
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run import standby
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.standby import Standby, catch_up
from strandline.jobs.session.apply import plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import BY_SHOP, PIPELINE, events
from tests.support.shared_lake import made, rows, shared_by, shared_in, statement, vouch
from tests.unit.operate.verify.damage import head_of, planted, said

template, lake = begins_with(made)


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    return Interpreter(settings, PIPELINE)


def heads(lake: LakeLayout, names: set[str]) -> dict[str, object]:
    return {name: reader.head(lake.table(name)) for name in names}


def check_after(settings: Settings, lake: LakeLayout) -> None:
    """What must hold after a replacement, and once more events came."""
    assert_whole(settings, lake)
    events(lake, [{"shop": "b", "item": "z", "qty": 9}, {"shop": "d", "item": "x", "qty": 2}], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)
    assert_whole(settings, lake)


def assert_whole(settings: Settings, lake: LakeLayout) -> None:
    """Views equal their SQL and verify, and the lake has the shared tables that are read, and nothing of a standby."""
    assert_correct(lake, PIPELINE)
    assert shared_in(lake) == shared_by(lake)
    views = [each.name for each in Catalog(lake).pipeline(PIPELINE)]
    assert [each for each in verify(settings, views, deep=True) if each.ok is False] == []
    assert not [path.name for path in on_disk(lake.tables).iterdir() if "__standby" in path.name]


def test_a_stage_that_others_have_is_found(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    before = heads(lake, {"b", "c", *shared_by(lake, "a")})
    was = reader.head(lake.table("a"))
    list(session.run(statement("a", "by shop")))
    now = reader.head(lake.table("a"))
    assert was is not None
    assert now is not None
    assert (now.record.table, now.version) == (was.record.table, was.version + 1)
    assert heads(lake, set(before)) == before
    assert rows(lake, "a") == [("a", 1), ("b", 1)]
    check_after(settings, lake)


def test_a_stage_that_nobody_has_is_made_and_one_that_nobody_reads_goes(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    [join], [cells] = shared_by(lake, "a"), shared_by(lake, "c")
    list(session.run(statement("a", "often")))
    [made_for_a] = shared_by(lake, "a")
    assert shared_in(lake) == {join, cells, made_for_a}
    list(session.run(statement("b", "often")))  # the last reader of the join; what `a` has is found
    assert shared_in(lake) == {cells, made_for_a}
    list(session.run(statement("c", "least")))  # another top over the same stage
    assert shared_in(lake) == {cells, made_for_a}
    check_after(settings, lake)


def test_the_change_feed_is_the_difference(session: Interpreter, lake: LakeLayout) -> None:
    """Of items x (3) and y (1), those of busy shops are x and y (1 each): only x differs."""
    head = reader.head(lake.table("a"))
    assert head is not None
    list(session.run(statement("a", "of busy shops")))
    changes = reader.read_changes(lake.table("a"), after=head.version).to_pylist()
    assert sorted((row["k"], row["n"], row[WEIGHT]) for row in changes) == [("x", 1, 1), ("x", 3, -1)]


def test_a_shared_stage_over_one_that_others_have(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    """The join reads the inner aggregate of `c` and the stream itself, which is ahead of it."""
    [cells] = shared_by(lake, "c")
    events(lake, [{"shop": "a", "item": "z", "qty": 1}], first=4, epoch=1)
    vouch(lake)
    list(session.run(statement("b", "of cells")))
    assert cells in shared_by(lake, "b")
    assert_whole(settings, lake)
    drain(settings, PIPELINE)
    assert_whole(settings, lake)
    list(session.run(statement("b", "of busy shops")))
    assert_whole(settings, lake)


@pytest.mark.parametrize("select", ["often", "of cells", "plain"] if AT_LENGTH else ["of cells"])
def test_a_view_may_share_its_stages_from_now_on_or_no_longer(
    session: Interpreter, settings: Settings, lake: LakeLayout, select: str
) -> None:
    for number, state in enumerate(("full", "shared", "full"), 1):
        list(session.run(statement("a", select, state)))
        assert_whole(settings, lake)
        events(lake, [{"shop": "b", "item": "z", "qty": number}], first=3 + number, epoch=number)
        vouch(lake)
        drain(settings, PIPELINE)
        assert_whole(settings, lake)
    list(session.run("DROP VIEW a; DROP VIEW b; DROP VIEW c;"))
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["by_shop", "sales"]


def test_a_definition_that_does_not_prove_right_leaves_nothing(
    session: Interpreter, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, there = heads(lake, {"a", "b", "c", *shared_in(lake)}), sorted(on_disk(lake.tables).iterdir())

    def wrongly(context: RunContext, standby: Standby) -> None:
        catch_up(context, standby)
        path = lake.table("a__standby")
        assert isinstance(path, Path)
        planted(path, "n", 99)
        said(path, digest=str(reader.digest_of_rows(path, read_snapshot(path, head_of(path)))))

    monkeypatch.setattr(operate_replace, "catch_up", wrongly)
    with pytest.raises(RefreshFailed, match=r"do not prove right: .*n=99"):
        list(session.run(statement("a", "of cells")))
    assert (heads(lake, set(before)), sorted(on_disk(lake.tables).iterdir())) == (before, there)


def test_a_swap_that_does_not_compute_leaves_nothing(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the stage that nobody had is adopted."""
    there = sorted(on_disk(lake.tables).iterdir())

    def failing(*_: object) -> str:
        raise duckdb.OutOfMemoryException("Out of Memory Error: it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(standby, "difference", failing)
        with pytest.raises(RefreshFailed, match="does not compute"):
            list(session.run(statement("a", "often")))
    assert sorted(on_disk(lake.tables).iterdir()) == there
    check_after(settings, lake)


def test_a_stage_that_another_view_has_got_meanwhile_is_found(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made apart: what was computed from that is computed again, from the one that stands by now."""
    ready = operate_replace._make_ready

    def beside(*given: Any) -> str | None:
        made = ready(*given)
        list(Interpreter(settings, PIPELINE).run(statement("d", "often", replacing=False)))
        drain(settings, PIPELINE)
        return made

    monkeypatch.setattr(operate_replace, "_make_ready", beside)
    list(session.run(statement("a", "often")))
    assert shared_by(lake, "a") == shared_by(lake, "d")
    check_after(settings, lake)


@pytest.mark.parametrize("running", [True, False])
def test_stages_that_stand_at_different_versions_are_brought_together(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """As while a run is between the one and the other: the rows are those of no moment, and prove nothing."""
    list(session.run(statement("b", "items")))
    events(lake, [{"shop": "a", "item": "y", "qty": 1}, {"shop": "b", "item": "y", "qty": 1}], first=4, epoch=1)
    vouch(lake)
    catalog = Catalog(lake)
    items = [item for level in maintained(catalog.pipeline(PIPELINE), catalog) for item in level]
    [first] = (item for item in items if item.target in shared_by(lake, "c"))
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        assert not refresh_all(RunContext(None, lake, "tests/1", None, duckdb_engine), [[first]], frozenset()).failures
    run = ExitStack()
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        run.close()
        drain(settings, PIPELINE)

    monkeypatch.setattr(time, "sleep", nap)
    if running:
        run.enter_context(sole_writer(lake, PIPELINE, "tests/1"))
    list(session.run(statement("a", "of both")))
    assert len(naps) == (1 if running else 0)
    assert_whole(settings, lake)


def test_the_plan_says_with_whom_the_stages_are_shared(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(statement("a", "by shop") + statement("b", "least", "full"))
    assert str(plan_apply(file, settings)).splitlines() == [
        "pipeline 'views':",
        "  replace   materialized view 'a'; the same columns; reads 4 rows of 'sales'; reads 3 rows of 'by_shop'; "
        "shares stages with 'b'",
        "  replace   materialized view 'b'; the same columns; reads 4 rows of 'sales'",
        "  kept      'by_shop': it is not in the file; DROP removes it",
        "  kept      'c': it is not in the file; DROP removes it",
    ]


def test_a_reader_that_holds_all_columns_of_a_view_is_named(session: Interpreter) -> None:
    """A shared join has all columns of what it joins: with another one it would be another table."""
    wider = BY_SHOP.replace("CREATE", "CREATE OR REPLACE").replace(
        "SUM(qty) AS total", "SUM(qty) AS total, MAX(qty) AS m"
    )
    with pytest.raises(NameInUse, match="'a': with STATE = 'shared' its join holds all columns"):
        list(session.run(wider))
