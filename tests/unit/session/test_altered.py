"""ALTER … ADD COLUMN of sources with events in the lake: what changes, what stays, and what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.definitions import Source, View, gives_the_same_rows
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NameTaken, NotSupported, SqlError, UnknownName
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.recovery.scenarios import Drill, run_drill
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.serve.results import LiveRows
from strandline.jobs.serve.results import Rows as Answered
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore
from tests.support.altered_lake import (
    AFTER,
    ALTER,
    PIPELINE,
    SALES,
    SHOPS,
    VIEWS,
    WIDE_SALES,
    WITH_COUPON,
    columns,
    made,
    rows,
    run,
    take_in,
)
from tests.support.begun_lake import begins_with
from tests.support.event_commits import commit_events
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.waiting import wait_until

VIEW_NAMES = ("by_shop", "named", "everything", "all_shops")


template, lake = begins_with(made)


def wrong(settings: Settings) -> list[str]:
    """What does not prove right of all tables, and what cannot be proved."""
    checks = verify(settings, [], deep=True)
    assert any(each.ok for each in checks if each.check == "recompute")
    return [str(each) for each in checks if each.ok is False or (each.check == "recompute" and each.ok is None)]


def test_old_events_are_null_in_the_column_and_new_ones_have_it(settings: Settings, lake: LakeLayout) -> None:
    before = {name: reader.head(lake.table(name)) for name in VIEW_NAMES}
    assert run(settings, ALTER) == [
        "stream 'sales' altered (pipeline 'shop')",
        "table 'shops' altered (pipeline 'shop')",
    ]
    assert rows(lake, "sales") == [("a", 1, None), ("a", 5, None), ("b", 2, None)]
    assert rows(lake, "shops") == [("a", "Anna", None, None), ("b", "Bert", None, None)]
    [answer] = Interpreter(settings).run("SELECT shop, coupon FROM sales WHERE qty = 5")
    assert isinstance(answer, Answered)
    assert list(answer.rows) == [("a", None)]
    # What reads them is not computed anew, and its rows prove right at the versions from before.
    assert {name: reader.head(lake.table(name)) for name in VIEW_NAMES} == before
    assert wrong(settings) == []
    run(settings, AFTER)
    take_in(settings)
    assert rows(lake, "sales") == [("a", 1, None), ("a", 3, "x"), ("a", 5, None), ("b", 2, None), ("c", 4, None)]
    assert rows(lake, "shops") == [("a", "Anna", None, None), ("b", "Bert", "Ulm", 3), ("c", "Cleo", None, 4)]
    assert rows(lake, "by_shop") == [("a", 3, 9), ("b", 1, 2), ("c", 1, 4)]
    assert rows(lake, "named") == [("Anna", 3), ("Bert", 1), ("Cleo", 1)]
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


def test_a_record_whose_new_field_does_not_fit_is_a_dead_letter(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    sent = [b'{"name": "Dora", "size": "big"}', b'{"name": "Emil", "other": 1}']
    open_log(settings, lake).produce("shops", [Record(b"d", each, 1_714_564_900_000) for each in sent])
    take_in(settings)
    assert rows(lake, "shops")[2:] == [("d", "Emil", None, None)]
    letters = reader.read_rows(lake.table("shops__dead_letters"), columns=["reason"])["reason"].to_pylist()
    assert len(letters) == 1
    assert "column 'size'" in letters[0]


def test_a_view_that_is_replaced_afterwards_has_the_column_from_history(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    run(settings, AFTER)
    take_in(settings)
    run(settings, WITH_COUPON)
    assert rows(lake, "by_shop") == [("a", 3, 9, 1), ("b", 1, 2, 0), ("c", 1, 4, 0)]
    run(settings, "INSERT INTO sales (shop, qty, coupon) VALUES ('b', 1, 'y');")
    take_in(settings)
    assert rows(lake, "by_shop") == [("a", 3, 9, 1), ("b", 2, 3, 1), ("c", 1, 4, 0)]
    run(
        settings,
        "CREATE MATERIALIZED VIEW by_town AS SELECT town, COUNT(*) AS n, SUM(size) AS size FROM shops GROUP BY town",
    )
    take_in(settings)
    assert rows(lake, "by_town") == [("Ulm", 1, 3), (None, 2, 4)]
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


def test_a_view_of_all_columns_keeps_those_that_it_was_registered_with(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    run(settings, AFTER)
    take_in(settings)
    everything = Catalog(lake).get("everything")
    assert isinstance(everything, View)
    assert (columns(lake, "everything"), everything.columns_seen) == (["shop", "qty"], {"sales": 2})
    assert rows(lake, "everything") == [("a", 1), ("a", 3), ("a", 5), ("b", 2), ("c", 4)]
    assert rows(lake, "all_shops") == [("a", "Anna"), ("b", "Bert"), ("c", "Cleo")]
    # Said again, the file is as it was; said with OR REPLACE, `*` is read today.
    assert all("unchanged" in each for each in run(settings, VIEWS))
    assert run(settings, "ALTER STREAM sales ADD at BIGINT") == ["stream 'sales' altered (pipeline 'shop')"]
    assert all("unchanged" in each for each in run(settings, VIEWS))
    run(settings, "CREATE OR REPLACE MATERIALIZED VIEW all_shops AS SELECT * FROM shops")
    assert columns(lake, "all_shops") == ["id", "name", "town", "size"]
    assert rows(lake, "all_shops") == [("a", "Anna", None, None), ("b", "Bert", "Ulm", 3), ("c", "Cleo", None, 4)]
    with pytest.raises(NotSupported, match="only ever added") as caught:
        run(settings, "CREATE OR REPLACE MATERIALIZED VIEW everything AS SELECT * FROM sales")
    assert caught.value.hint == "name its columns in place of *: shop, qty"
    again = "CREATE OR REPLACE MATERIALIZED VIEW everything AS SELECT shop, qty FROM sales"
    assert run(settings, again) == ["materialized view 'everything' unchanged (pipeline 'shop')"]
    take_in(settings)
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


def test_a_name_that_a_column_takes_means_to_a_view_what_it_meant(settings: Settings, lake: LakeLayout) -> None:
    """`n` is a column of by_shop alone when the view is registered, and of both inputs afterwards."""
    text = "CREATE MATERIALIZED VIEW joined AS SELECT qty, n FROM sales JOIN by_shop ON sales.shop = by_shop.shop"
    run(settings, text)
    take_in(settings)
    run(settings, "ALTER STREAM sales ADD n VARCHAR")
    run(settings, "INSERT INTO sales (shop, qty, n) VALUES ('b', 7, 'no');")
    take_in(settings)
    assert rows(lake, "joined") == [(1, 2), (2, 2), (5, 2), (7, 2)]
    for again in (text, text.replace("CREATE", "CREATE OR REPLACE")):
        assert run(settings, again) == ["materialized view 'joined' unchanged (pipeline 'shop')"]
    assert_correct(lake, PIPELINE)


def test_views_that_share_stages_go_on_with_the_same_tables(settings: Settings, lake: LakeLayout) -> None:
    shared = """CREATE MATERIALIZED VIEW {} WITH (STATE = 'shared') AS
      SELECT name, {}(qty) AS v FROM sales JOIN shops ON id = shop GROUP BY name"""
    run(settings, ";".join(shared.format(name, call) for name, call in (("one", "SUM"), ("two", "MAX"))))
    take_in(settings)
    there = sorted(path.name for path in on_disk(lake.tables).iterdir())
    run(settings, ALTER)
    run(settings, AFTER)
    take_in(settings)
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == there
    assert rows(lake, "two") == [("Anna", 5), ("Bert", 2), ("Cleo", 4)]
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


def test_applying_a_file_with_further_columns_is_the_same(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(WIDE_SALES + SHOPS + WITH_COUPON + VIEWS.partition("GROUP BY shop;")[2])
    before = Catalog(lake).definitions()
    assert str(plan_apply(file, settings)).splitlines() == [
        "pipeline 'shop':",
        "  alter     stream 'sales'; +coupon VARCHAR; 'by_shop', 'everything' stay as they are",
        "  unchanged table 'shops'",
        "  replace   table 'by_shop'; +coupons BIGINT; reads 3 rows of 'sales'; 'named' follow by the difference",
        "  unchanged materialized view 'named'",
        "  unchanged materialized view 'everything'",
        "  unchanged materialized view 'all_shops'",
    ]
    assert Catalog(lake).definitions() == before
    outcomes = [change.outcome for change in apply(file, settings).changes]
    assert outcomes == ["altered", "unchanged", "replaced", *["unchanged"] * 3]
    run(settings, AFTER.partition(";")[0])
    take_in(settings)
    assert rows(lake, "by_shop") == [("a", 3, 9, 1), ("b", 1, 2, 0), ("c", 1, 4, 0)]
    assert {change.outcome for change in apply(file, settings).changes} == {"unchanged"}
    assert_correct(lake, PIPELINE)


def test_a_source_without_events_is_altered_too(settings: Settings, lake: LakeLayout) -> None:
    run(settings, "CREATE STREAM empty (a INT) WITH (KAFKA_TOPIC = 'empty'); ALTER STREAM empty ADD b INT;")
    assert columns(lake, "empty") == ["a", "b"]
    run(settings, "INSERT INTO empty (a, b) VALUES (1, 2);")
    take_in(settings)
    assert rows(lake, "empty") == [(1, 2)]


def test_the_owner_of_an_altered_source_or_of_its_views_can_change(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    said = run(
        settings,
        "CREATE OR REPLACE STREAM sales (shop VARCHAR, qty INT, coupon VARCHAR)"
        " WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1, OWNER = 'team:x');"
        "CREATE OR REPLACE TABLE by_shop WITH (OWNER = 'team:x') AS"
        " SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;",
    )
    assert all("replaced" in each for each in said)
    sales = Catalog(lake).get("sales")
    assert isinstance(sales, Source)
    assert sales.added == 1
    run(settings, AFTER)
    take_in(settings)
    assert_correct(lake, PIPELINE)


@pytest.mark.parametrize("name", ["sales", "everything"])
def test_a_broken_definition_is_registered_again_as_it_was(name: str, settings: Settings, lake: LakeLayout) -> None:
    run(settings, "ALTER STREAM sales ADD coupon VARCHAR; ALTER STREAM sales ADD at BIGINT;")
    run(settings, "INSERT INTO sales (shop, qty, at) VALUES ('a', 3, 5);")
    take_in(settings)
    before = Catalog(lake).get(name)
    file = lake.catalog / f"{name}.json"
    assert isinstance(file, Path)
    file.write_bytes(file.read_bytes()[:-40])
    text = WIDE_SALES.replace("coupon VARCHAR", "coupon VARCHAR, at BIGINT") + VIEWS
    said = run(settings, text)
    assert [each for each in said if "unchanged" not in each] == [each for each in said if f"'{name}' repaired" in each]
    after = Catalog(lake).get(name)
    assert gives_the_same_rows(before, after)
    if isinstance(after, Source):
        assert after.added == 2
    else:
        assert isinstance(after, View)
        assert after.columns_seen == {"sales": 2}
    take_in(settings)
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


# --- readers ------------------------------------------------------------------------------------------------------


def test_a_subscriber_from_before_sees_all_that_comes(settings: Settings, lake: LakeLayout) -> None:
    [narrow] = Interpreter(settings).run("SELECT * FROM shops EMIT CHANGES LIMIT 3")
    assert isinstance(narrow, LiveRows)
    seen = [next(narrow.rows), next(narrow.rows)]
    run(settings, ALTER)
    run(settings, AFTER)
    take_in(settings)
    # The new value of b is in a column that it does not show: no change.
    assert [*seen, *narrow.rows] == [("a", "Anna"), ("b", "Bert"), ("c", "Cleo")]
    [wide] = Interpreter(settings).run("SELECT id, town FROM shops EMIT CHANGES LIMIT 3")
    assert isinstance(wide, LiveRows)
    assert sorted(wide.rows, key=str) == [("a", None), ("b", "Ulm"), ("c", None)]


def test_a_query_at_a_cut_from_before_has_null(settings: Settings, lake: LakeLayout) -> None:
    """An event that by_shop does not reflect yet holds the query back to where the stream had no such column."""
    run(settings, ALTER)
    sales = Catalog(lake).get("sales")
    assert isinstance(sales, Source)
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    place = {"_partition": 0, "_offset": 3, "_timestamp": at, "_stream_time": at}
    commit_events(lake, sales, [{"shop": "a", "qty": 9, "coupon": "x", **place}])
    [answer] = Interpreter(settings).run("SELECT s.qty, s.coupon, b.n FROM sales s JOIN by_shop b ON s.shop = b.shop")
    assert isinstance(answer, Answered)
    assert sorted(answer.rows, key=str) == [(1, None, 2), (2, None, 1), (5, None, 2)]


def test_partial_views_from_before_and_after_answer(settings: Settings, lake: LakeLayout) -> None:
    text = "CREATE MATERIALIZED VIEW {} WITH (STATE = 'partial') AS SELECT shop, {} FROM sales GROUP BY shop;"
    run(settings, text.format("former", "COUNT(*) AS n") + ALTER + text.format("later", "COUNT(coupon) AS n"))
    run(settings, AFTER)
    take_in(settings)
    for name, n in (("former", 3), ("later", 1)):
        [answer] = Interpreter(settings).run(f"SELECT * FROM {name} WHERE shop = 'a'")
        assert isinstance(answer, Answered)
        assert list(answer.rows) == [("a", n)]


def test_drills_of_an_altered_table_end_well(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    for number in range(2):
        run(settings, f"INSERT INTO shops (id, name, town) VALUES ('b', 'Bert', 'Ulm{number}');")
        take_in(settings)
    drills = [Drill(each, "shops", 60.0) for each in ("changelog", "point-in-time", "feed-gap", "recompute")]
    results = [run_drill(settings, each) for each in drills]
    assert [(each.drill, each.why) for each in results if not each.passed] == []


def test_a_replica_is_opened_anew_and_has_the_column(settings: Settings, lake: LakeLayout) -> None:
    table = lake.table("shops")
    store = MemoryStore()
    replica = Replica("shops", store, Layout(reader.schema(table), ("id",)))
    Follower(table, replica, "r").catch_up()
    run(settings, ALTER)
    again = Replica("shops", store, Layout(reader.schema(table), ("id",)))
    Follower(table, again, "r").catch_up()
    run(settings, AFTER)
    take_in(settings)
    Follower(table, again, "r").catch_up()
    with again.reading() as now:
        found = now.get(("b",))
    assert found == {"id": "b", "name": "Bert", "town": "Ulm", "size": 3}


def test_a_server_sees_the_columns(settings: Settings, lake: LakeLayout) -> None:
    catalogued = Catalogued(lake)
    assert [name for name, _ in catalogued.relation("shops").columns] == ["id", "name"]
    run(settings, ALTER)
    wait_until(lambda: len(catalogued.relation("shops").columns) == 4, "the server does not see them")


def test_a_backup_of_an_altered_lake_is_restored(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALTER)
    run(settings, AFTER)
    take_in(settings)
    execute_backup(settings, plan_backup(settings, tmp_path / "backup"))
    other = load_settings(lake=tmp_path / "other")
    execute_restore(plan_restore(tmp_path / "backup", other.lake))
    assert rows(LakeLayout(other.lake), "sales") == rows(lake, "sales")
    assert wrong(other) == []


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "error", "told"),
    [
        ("ALTER STREAM nope ADD c INT", UnknownName, "unknown"),
        ("ALTER TABLE by_shop ADD c INT", InvalidQuery, "computed by a query"),
        ("ALTER TABLE sales ADD c INT", InvalidQuery, "'sales' is no table"),
        ("ALTER STREAM sales ADD qty INT", InvalidQuery, "two columns are named 'qty'"),
        ("ALTER STREAM sales ADD c INT, ADD c INT", InvalidQuery, "two columns are named 'c'"),
        ("ALTER STREAM sales ADD `QTY` INT", InvalidQuery, "qty"),
        ("ALTER STREAM sales ADD c INT KEY", InvalidQuery, "only columns of the value"),
        ("ALTER STREAM sales ADD c BYTES HEADER('h')", InvalidQuery, "only columns of the value"),
        ("ALTER STREAM sales ADD rowtime BIGINT", InvalidQuery, "is reserved"),
        ("ALTER STREAM sales ADD c INT NOT NULL", InvalidQuery, "'c' cannot be added as NOT NULL"),
        (WIDE_SALES.replace("coupon VARCHAR", "c INT NOT NULL"), InvalidQuery, "'c' cannot be added as NOT NULL"),
        ("ALTER STREAM sales RENAME COLUMN qty TO n", NotSupported, "RENAME"),
        ("ALTER STREAM sales DROP COLUMN qty", NotSupported, "DROP"),
    ],
)
def test_what_cannot_be_added_is_refused(
    statement: str, error: type[SqlError], told: str, settings: Settings, lake: LakeLayout
) -> None:
    before = Catalog(lake).definitions()
    with pytest.raises(error, match=told) as caught:
        run(settings, statement)
    assert caught.value.line == 1
    assert Catalog(lake).definitions() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SALES.replace(", qty INT", ""), r"by -qty INT, and break .*'by_shop': unknown column 'qty'.*'everything':"),
        (SALES.replace("INT", "BIGINT"), r"by ~qty INT to BIGINT, and break .*'by_shop': its rows.*'everything': its"),
        (SALES.replace("shop VARCHAR", "shop VARCHAR KEY"), r"by the key from none to shop, and break .*'by_shop'"),
        (SALES.replace("'sales'", "'sold'"), r"by KAFKA_TOPIC from sales to sold, and break .*'by_shop'"),
        (SALES.replace("'sales',", "'sales', VALUE_FORMAT = 'AVRO',"), r"by VALUE_FORMAT from JSON to AVRO, and break"),
        (SALES.replace("shop VARCHAR, qty INT", "shop VARCHAR, c INT, qty INT"), r"by \+c INT, and break"),
    ],
)
def test_any_other_change_is_refused_with_all_that_it_breaks(
    text: str, told: str, settings: Settings, lake: LakeLayout
) -> None:
    before = Catalog(lake).definitions()
    for said, error in ((text, NameTaken), (text.replace("CREATE", "CREATE OR REPLACE"), NameInUse)):
        with pytest.raises(error, match=told):
            run(settings, said)
    assert Catalog(lake).definitions() == before


def test_a_stream_that_queries_insert_into_gets_no_columns(settings: Settings, lake: LakeLayout) -> None:
    run(
        settings,
        "CREATE STREAM more (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'more');"
        "INSERT INTO more SELECT shop, qty FROM sales;",
    )
    with pytest.raises(
        NameInUse, match=r"by \+coupon VARCHAR, and break .*'more__insert_1', whose rows have no column"
    ):
        run(settings, "ALTER STREAM more ADD coupon VARCHAR")
    # What it reads may get some.
    run(settings, ALTER)
    assert all("unchanged" in each for each in run(settings, "INSERT INTO more SELECT * FROM sales;"))
    run(settings, AFTER)
    take_in(settings)
    assert len(rows(lake, "more")) == 5
    assert wrong(settings) == []


def test_a_source_that_others_own_is_not_altered(settings: Settings, lake: LakeLayout) -> None:
    text = "CREATE SOURCE STREAM theirs (a INT) WITH (KAFKA_TOPIC = 'sales')"
    run(settings, text)
    for statement in ("ALTER STREAM theirs ADD b INT", text.replace("a INT", "a INT, b INT")):
        with pytest.raises(InvalidQuery, match="is a SOURCE"):
            run(settings, statement)


def test_a_format_that_cannot_hold_the_column_refuses_it(settings: Settings, lake: LakeLayout) -> None:
    run(settings, "CREATE STREAM bare (a INT) WITH (KAFKA_TOPIC = 'bare', VALUE_FORMAT = 'KAFKA')")
    with pytest.raises(InvalidQuery, match="KAFKA holds one value column"):
        run(settings, "ALTER STREAM bare ADD b INT")
    run(settings, "CREATE STREAM lines (a INT) WITH (KAFKA_TOPIC = 'lines', VALUE_FORMAT = 'DELIMITED')")
    with pytest.raises(InvalidQuery, match="cannot hold the value column 'b'"):
        run(settings, "ALTER STREAM lines ADD b ARRAY<INT>")
