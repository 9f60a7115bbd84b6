"""What goes wrong while a replacement is ended: the view is as it was or as it is to be, and its pipeline runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate import replace as operate_replace
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run import end_replacements, standby
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.standby import Standby, catch_up
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import AFTER, BEFORE, BY_SHOP, NEXT, PIPELINE, events, made, rows
from tests.unit.operate.verify.damage import flip

template, lake = begins_with(made)


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    return Interpreter(settings, PIPELINE)


def test_a_fault_after_the_commit_of_the_swap_does_not_undo_it(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any) -> None:
        standby.swap(*given)
        raise DiskFailed("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(end_replacements, "swap", failing)
        with pytest.raises(DiskFailed):
            list(session.run(NEXT))
    assert rows(lake, "by_shop") == AFTER
    events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 2, 11, 9)]
    assert intents.find_replacement("by_shop", lake) is None
    assert_correct(lake, PIPELINE)


def test_a_swap_that_duckdb_cannot_compute_leaves_the_view(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> str:
        raise duckdb.OutOfMemoryException("Out of Memory Error: it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(standby, "difference", failing)
        with pytest.raises(RefreshFailed, match="the swap of 'by_shop' does not compute: Out of Memory"):
            list(session.run(NEXT))
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == BEFORE
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["by_shop", "large", "most", "sales"]
    assert_correct(lake, PIPELINE)


def test_an_intent_that_is_taken_back_at_the_last_moment_is_not_put_again(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_back(context: RunContext, standby: Standby, **options: bool) -> Head:
        with locked(lake.catalog):
            intents.end_replacement("by_shop", lake)
        return catch_up(context, standby, **options)

    with monkeypatch.context() as patched:
        patched.setattr(end_replacements, "catch_up", taken_back)
        list(session.run(NEXT))
    assert intents.find_replacement("by_shop", lake) is None
    assert rows(lake, "by_shop") == BEFORE


def test_a_view_that_is_dropped_while_its_next_definition_is_made_ready_stays_dropped(
    session: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = operate_replace._make_ready

    def dropped(*given: Any) -> None:
        ready(*given)
        list(Interpreter(settings, PIPELINE).run("DROP TABLE by_shop CASCADE"))

    monkeypatch.setattr(operate_replace, "_make_ready", dropped)
    with pytest.raises(RefreshFailed, match="was dropped"):
        list(session.run(NEXT))
    assert intents.begun_replacements(lake) == []
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["sales"]
    list(Interpreter(settings, PIPELINE).run(BY_SHOP))
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == BEFORE


def test_rows_that_only_a_former_key_told_apart_are_all_in_the_difference(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    """Two shops with one row of the view each, alike but for the shop, which nobody selected."""
    by_qty = "SELECT qty, COUNT(*) AS n FROM sales WHERE qty < 5 GROUP BY qty"
    list(session.run(f"CREATE MATERIALIZED VIEW counts AS SELECT n FROM by_shop; CREATE TABLE by_qty AS {by_qty};"))
    drain(settings, PIPELINE)
    assert rows(lake, "counts") == [(1,), (1,), (2,)]
    head = reader.head(lake.table("counts"))
    assert head is not None
    list(session.run("CREATE OR REPLACE MATERIALIZED VIEW counts AS SELECT n FROM by_qty"))
    assert rows(lake, "counts") == [(1,), (2,)]
    changes = reader.read_changes(lake.table("counts"), after=head.version).to_pylist()
    assert sorted((row["n"], row[WEIGHT]) for row in changes) == [(1, -1)]
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, ["counts"], deep=True) if each.ok is False] == []


def test_a_definition_with_the_same_rows_has_a_feed_that_says_nothing(session: Interpreter, lake: LakeLayout) -> None:
    """Without a file that lists changes, other readers of Delta would see all rows go and come."""
    head = reader.head(lake.table("by_shop"))
    assert head is not None
    list(session.run(BY_SHOP.replace("CREATE", "CREATE OR REPLACE").replace("sales", "sales WHERE qty > 0")))
    commit = log.read_commit(lake.table("by_shop"), head.version + 1)
    assert commit.removed
    [file] = commit.change_files
    assert duckdb.execute(f"SELECT * FROM read_parquet('{file.path}')").fetchall() == []
    assert reader.read_changes(lake.table("by_shop"), after=head.version).num_rows == 0
    assert rows(lake, "by_shop") == BEFORE


def test_a_broken_file_of_listed_changes_is_found(session: Interpreter, lake: LakeLayout) -> None:
    head = reader.head(lake.table("by_shop"))
    assert head is not None
    list(session.run(NEXT))
    [file] = log.read_commit(lake.table("by_shop"), head.version + 1).change_files
    assert isinstance(file.path, Path)
    flip(file.path, at=-20)  # in the footer, which Parquet does not check
    with pytest.raises(CorruptState, match="fails its checksum"):
        reader.read_changes(lake.table("by_shop"), after=head.version)


def test_an_intent_out_of_sight_is_not_taken_for_none(
    session: Interpreter, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that did not see it would go on with the former definition, after a swap perhaps."""
    present = Catalog(lake).get("by_shop")
    assert isinstance(present, View)
    with locked(lake.catalog):
        intents.put_replacement(intents.Replacement(present, epoch=1), lake)

    def unseen(*_: object) -> bytes:
        raise StorageUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", unseen)
        with pytest.raises(StorageUnavailable):
            intents.begun_replacements(lake)
    monkeypatch.setattr(reader, "head", unseen)
    with pytest.raises(StorageUnavailable):
        Catalog(lake)


def test_a_view_of_another_pipeline_that_is_behind_reads_across_the_swap(settings: Settings, lake: LakeLayout) -> None:
    """Its input keeps the key in `__state`, which has other fields before and after; the commits on both sides add."""
    first = "CREATE MATERIALIZED VIEW counts AS SELECT COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop"
    then = "CREATE OR REPLACE MATERIALIZED VIEW counts AS SELECT MAX(item) AS last, COUNT(*) AS n, SUM(qty) AS total"
    session = Interpreter(settings, PIPELINE)
    list(session.run(first))
    list(Interpreter(settings, "others").run("CREATE MATERIALIZED VIEW totals AS SELECT total FROM counts"))
    drain(settings, PIPELINE)
    drain(settings, "others")
    events(lake, [{"shop": "d", "item": "x", "qty": 4}], first=4, epoch=1)
    drain(settings, PIPELINE)
    list(session.run(f"{then} FROM sales GROUP BY shop"))
    events(lake, [{"shop": "e", "item": "x", "qty": 5}], first=5, epoch=2)
    drain(settings, PIPELINE)
    drain(settings, "others")
    assert rows(lake, "totals") == [(1,), (2,), (4,), (5,), (6,)]
    assert_correct(lake, "others")
