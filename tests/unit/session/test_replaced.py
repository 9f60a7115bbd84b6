"""CREATE OR REPLACE of a view that has rows, by the process that says it: what changes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NotSupported, RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate import replace as operate_replace
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.standby import Standby, catch_up
from strandline.jobs.serve.results import Message
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT
from tests.support import lake_tables
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import AFTER, BEFORE, BY_SHOP, NEXT, PIPELINE, READERS, events, made, rows
from tests.unit.operate.verify.damage import head_of, planted, said

template, lake = begins_with(made)


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    return Interpreter(settings, PIPELINE)


def test_the_table_gets_the_next_rows_in_one_commit(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    before = reader.head(lake.table("by_shop"))
    list(session.run(NEXT))
    after = reader.head(lake.table("by_shop"))
    assert before is not None
    assert after is not None
    assert (after.record.table, after.version) == (before.record.table, before.version + 1)
    assert rows(lake, "by_shop") == AFTER
    assert not list(on_disk(lake.tables).glob("*standby*"))
    drain(settings, PIPELINE)
    assert (rows(lake, "large"), rows(lake, "most")) == ([], [(1,)])
    assert_correct(lake, PIPELINE)
    events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 2, 11, 9)]
    assert_correct(lake, PIPELINE)
    checks = verify(settings, ["by_shop", "most", "large"], deep=True)
    assert [each for each in checks if each.ok is False] == []


def test_the_change_feed_of_the_swap_is_the_difference(session: Interpreter, lake: LakeLayout) -> None:
    """A row that both definitions give is not in it, though every row is written anew."""
    head = reader.head(lake.table("by_shop"))
    assert head is not None
    list(session.run(BY_SHOP.replace("CREATE", "CREATE OR REPLACE").replace("sales", "sales WHERE qty > 1")))
    commit = log.read_commit(lake.table("by_shop"), head.version + 1)
    assert len(commit.change_files) == 1
    changes = reader.read_changes(lake.table("by_shop"), after=head.version)
    found = sorted((row["shop"], row["n"], row[WEIGHT]) for row in changes.to_pylist())
    assert found == [("a", 1, 1), ("a", 2, -1), ("c", 1, -1)]
    assert commit.record is not None
    assert (commit.record.inserted, commit.record.deleted) == (1, 2)


def test_a_view_with_inner_stages_gets_others(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    inner = "(SELECT shop, item, SUM(qty) AS total, COUNT(*) AS n FROM sales GROUP BY shop, item) AS i"
    text = (
        f"CREATE OR REPLACE TABLE by_shop AS SELECT shop, MAX(n) AS n, MAX(total) AS total FROM {inner} GROUP BY shop"
    )
    for number, extrema in enumerate(("MAX", "MIN"), 1):
        list(session.run(text.replace("MAX(total)", f"{extrema}(total)")))
        assert [path.name for path in on_disk(lake.tables).glob("by_shop__*")] == [f"by_shop__stage_{number}"]
        drain(settings, PIPELINE)
        assert_correct(lake, PIPELINE)


def test_what_would_break_a_reader_is_refused_with_the_difference(session: Interpreter, lake: LakeLayout) -> None:
    without = "CREATE OR REPLACE TABLE by_shop AS SELECT shop, SUM(qty) AS total FROM sales GROUP BY shop"
    with pytest.raises(NameInUse, match=r"by -n BIGINT, and break.*'most'.*'large'"):
        list(session.run(without))
    with pytest.raises(NameInUse, match="key would be"):
        list(
            session.run(
                NEXT.replace("GROUP BY shop", "GROUP BY shop, item").replace("SELECT shop", "SELECT shop, item")
            )
        )
    with pytest.raises(NotSupported, match=r"'total' is .* would become VARCHAR"):
        list(session.run(NEXT.replace("SUM(qty)", "CAST(SUM(qty) AS VARCHAR)")))
    with pytest.raises(NotSupported, match="only ever added"):
        list(session.run("CREATE OR REPLACE MATERIALIZED VIEW by_shop AS SELECT shop, qty AS n FROM sales"))
    assert rows(lake, "by_shop") == BEFORE


def test_a_view_cannot_come_to_read_itself(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    over = "CREATE OR REPLACE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(n) AS total FROM {} GROUP BY shop"
    for read, way in (("large", "'large' -> 'by_shop'"), ("by_shop", "would read itself: 'by_shop'")):
        with pytest.raises(InvalidQuery, match=way):
            list(session.run(over.format(read)))
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == BEFORE


def test_a_column_that_went_cannot_come_again(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    """The feed is read in the columns of today: it would say the values of then, and never that they went."""
    list(session.run("CREATE OR REPLACE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop"))
    drain(settings, PIPELINE)
    with pytest.raises(NotSupported, match="had a column 'total' before"):
        list(session.run(BY_SHOP.replace("CREATE", "CREATE OR REPLACE")))
    assert [each for each in verify(settings, ["by_shop"], deep=True) if each.ok is False] == []
    assert rows(lake, "by_shop") == [row[:2] for row in BEFORE]


def test_a_view_may_come_to_read_one_that_was_made_after_it(session: Interpreter, lake: LakeLayout) -> None:
    list(session.run("CREATE TABLE later AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop"))
    drain(session.settings, PIPELINE)
    list(session.run("CREATE OR REPLACE TABLE by_shop AS SELECT shop, n, total FROM later"))
    assert rows(lake, "by_shop") == BEFORE
    list(session.run("DROP TABLE later CASCADE"))
    assert Catalog(lake).names() == ("sales",)


def test_a_column_that_nobody_reads_may_go(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    list(session.run("CREATE OR REPLACE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop"))
    assert rows(lake, "by_shop") == [row[:2] for row in BEFORE]
    events(lake, [{"shop": "c", "item": "x", "qty": 9}], first=4, epoch=1)
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)


def test_a_reader_of_all_columns_would_change(session: Interpreter) -> None:
    list(session.run("CREATE MATERIALIZED VIEW everything AS SELECT * FROM by_shop"))
    with pytest.raises(NameInUse, match="'everything': its own rows would change"):
        list(session.run(NEXT))


def test_applying_the_readers_again_changes_nothing(session: Interpreter, lake: LakeLayout) -> None:
    list(session.run(NEXT))
    before = Catalog(lake).definitions()
    said = [str(result) for result in session.run(NEXT + READERS)]
    assert all("unchanged" in each for each in said), said
    assert Catalog(lake).definitions() == before


def test_the_plan_of_a_file_says_what_is_replaced_and_who_follows(
    tmp_path: Path, settings: Settings, lake: LakeLayout
) -> None:
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(NEXT + READERS + "CREATE MATERIALIZED VIEW new AS SELECT COUNT(*) AS n FROM large;")
    before = Catalog(lake).definitions()
    assert str(plan_apply(file, settings)).splitlines() == [
        "pipeline 'views':",
        "  replace   table 'by_shop'; +most INT; reads 4 rows of 'sales'; 'most', 'large' follow by the difference",
        "  unchanged materialized view 'most'",
        "  unchanged materialized view 'large'",
        "  create    materialized view 'new'; reads 1 rows of 'large'",
    ]
    assert (Catalog(lake).definitions(), rows(lake, "by_shop")) == (before, BEFORE)
    file.write_text(NEXT)
    kept = str(plan_apply(file, settings))
    assert "kept      'most': it is not in the file" in kept


@pytest.mark.parametrize(("whole", "told"), [(False, "have the digest"), (True, "not those of its SQL .* n=99")])
def test_a_replacement_that_does_not_prove_right_leaves_the_view(
    session: Interpreter, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch, whole: bool, told: str
) -> None:
    """A wrong value in the rows that were made ready: one that the record tells, and one that only the SQL tells."""
    before = Catalog(lake).get("by_shop")
    heads = {name: reader.head(lake.table(name)) for name in ("by_shop", "large", "most")}

    def wrongly(context: RunContext, standby: Standby) -> None:
        catch_up(context, standby)
        path = lake.table("by_shop__standby")
        assert isinstance(path, Path)
        planted(path, "n", 99)
        if whole:
            said(path, digest=str(reader.digest_of_rows(path, read_snapshot(path, head_of(path)))))

    monkeypatch.setattr(operate_replace, "catch_up", wrongly)
    with pytest.raises(RefreshFailed, match=f"do not prove right: .*{told}"):
        list(session.run(NEXT))
    assert (Catalog(lake).get("by_shop"), rows(lake, "by_shop")) == (before, BEFORE)
    assert {name: reader.head(lake.table(name)) for name in heads} == heads
    assert not list(on_disk(lake.tables).glob("*standby*"))


def test_rows_that_cannot_be_proved_are_told_of(session: Interpreter, lake: LakeLayout) -> None:
    """An input whose rows are not those of its record says nothing of what is computed from it."""
    (proved,) = session.run(NEXT)
    assert proved == Message("table 'by_shop' replaced (pipeline 'views')")
    sales = lake.table("sales")
    assert isinstance(sales, Path)
    said(sales, digest="0" * 32 + ":4")
    (answer,) = session.run(NEXT.replace("qty > 1", "qty > 2"))
    assert isinstance(answer, Message)
    assert answer.text.endswith(
        "replaced (pipeline 'views'); its rows are not proved: 'sales' does not read at version 0: verify 'sales'"
    )


def test_a_replacement_whose_rows_cannot_be_proved_says_so_before(
    session: Interpreter, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    """What a table was when an event came, no version tells: the plan knows it of the definition alone."""
    why = "an event joins a table as it was when the event came: its versions do not tell that"
    shops = "CREATE TABLE shops (shop VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'shops', PARTITIONS = 1);"
    list(Interpreter(settings, "sales").run(shops))
    lake_tables.events(lake, "shops__log", [{"shop": "a", "town": "x", "_tombstone": False}])
    file = tmp_path / "towns.sql"
    for least in (1, 2):
        file.write_text(
            "CREATE OR REPLACE TABLE by_town WITH (SEMANTICS = 'ksql') AS SELECT t.town, COUNT(*) AS n FROM sales AS s "
            f"JOIN shops AS t ON s.shop = t.shop WHERE s.qty > {least} GROUP BY t.town;"
        )
        planned = str(plan_apply(file, settings))
        applied = str(apply(file, settings))
        if least == 1:
            assert "proved" not in planned + applied
            drain(settings, "towns")
    assert f"; its rows will not be proved: {why}" in planned
    assert applied == f"table 'by_town' replaced (pipeline 'towns'); its rows are not proved: {why}"


def test_a_view_that_got_another_definition_meanwhile_is_left_alone(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    present = Catalog(lake).get("by_shop")
    assert isinstance(present, View)
    list(session.run(NEXT))
    with pytest.raises(RefreshFailed, match="another definition meanwhile"):
        operate_replace.replace_view(settings, present, present)
    assert rows(lake, "by_shop") == AFTER


def test_rows_that_do_not_compute_leave_the_view(session: Interpreter, lake: LakeLayout) -> None:
    with pytest.raises(RefreshFailed, match="fails on some rows"):
        list(session.run(NEXT.replace("MAX(qty) AS most", "MAX(10 / (qty - 5)) AS most")))
    assert rows(lake, "by_shop") == BEFORE
    assert not list(on_disk(lake.tables).glob("*standby*"))
