"""ALTER … RENAME TO: what goes on under the new name, what is refused, and what a kill leaves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery, NameTaken, NotSupported, SqlError, UnknownName
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.serve.results import Document, LiveRows
from strandline.jobs.serve.results import Rows as Answered
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.lake import Lake as OpenLake
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore
from tests.support.altered_lake import PIPELINE, SALES, SHOPS, VIEWS, made, rows, run, take_in
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.waiting import wait_until
from tests.support.warm_process import exit_code

KILLED = -9
ALL = """
ALTER STREAM sales RENAME TO deals;
ALTER TABLE shops RENAME TO stores;
ALTER TABLE by_shop RENAME TO sold;
ALTER MATERIALIZED VIEW named RENAME TO `Named shops`;
ALTER VIEW everything RENAME TO all_deals;
"""
CALLED = {"sales": "deals", "shops": "stores", "by_shop": "sold", "named": "Named shops", "everything": "all_deals"}
FILE = """
CREATE STREAM deals (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE stores (id VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC = 'shops', PARTITIONS = 1);
CREATE TABLE sold AS SELECT deals.shop, COUNT(*) AS n, SUM(qty) AS total FROM deals GROUP BY shop;
CREATE MATERIALIZED VIEW `Named shops` AS SELECT s.name, sold.n FROM sold JOIN stores s ON s.id = sold.shop;
CREATE MATERIALIZED VIEW all_deals AS SELECT * FROM deals;
CREATE MATERIALIZED VIEW all_shops AS SELECT * FROM stores;
"""


template, lake = begins_with(made)


def wrong(settings: Settings) -> list[str]:
    """What does not prove right of all tables."""
    checks = verify(settings, [], deep=True)
    assert any(each.ok for each in checks if each.check == "recompute")
    return [str(each) for each in checks if each.ok is False]


def asked(settings: Settings, text: str) -> list[Sequence[object]]:
    [answer] = Interpreter(settings, PIPELINE).run(text)
    assert isinstance(answer, Answered)
    return sorted(answer.rows, key=str)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_computed_anew_and_all_goes_on(settings: Settings, lake: LakeLayout) -> None:
    assert isinstance(lake.root, Path)
    before = files(lake.root)
    assert run(settings, ALL) == [f"`{name}` is called `{called}` from now on" for name, called in CALLED.items()]
    after = files(lake.root)
    changed = {name for name, data in after.items() if before.get(name) != data}
    assert changed == {*(f"catalog/{n}.json" for n in CALLED), "definitions.json"}, "the list has their checksums"
    assert after.keys() == before.keys()
    said = run(
        settings,
        "INSERT INTO deals (shop, qty) VALUES ('a', 3), ('c', 4); INSERT INTO stores VALUES ('c', 'Cleo');"
        "DELETE FROM stores WHERE id = 'b'; UPDATE stores SET name = 'Ann' WHERE id = 'a';",
    )
    assert said == [
        "2 rows inserted into 'deals'",
        "1 row inserted into 'stores'",
        "1 key deleted from 'stores'",
        "1 row of 'stores' updated",
    ]
    take_in(settings)
    assert asked(settings, "SELECT * FROM sold") == [("a", 3, 9), ("b", 1, 2), ("c", 1, 4)]
    assert asked(settings, "SELECT `Named shops`.n, name FROM `Named shops`") == [(1, "Cleo"), (3, "Ann")]
    assert asked(settings, "SELECT COUNT(*) AS n FROM all_deals a JOIN deals ON deals.qty = a.qty") == [(5,)]
    assert [row[0] for row in asked(settings, "SELECT shop FROM sold WHERE n = (SELECT MAX(n) FROM sold)")] == ["a"]
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []


def test_a_view_that_is_made_and_one_that_is_replaced_later_read_the_new_names(
    settings: Settings, lake: LakeLayout
) -> None:
    run(settings, ALL)
    run(
        settings,
        "CREATE MATERIALIZED VIEW both AS SELECT sold.shop, stores.name FROM sold JOIN stores ON stores.id = sold.shop;"
        "CREATE OR REPLACE TABLE sold AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total, MAX(qty) AS most FROM deals"
        " GROUP BY shop;"
        "CREATE STREAM more (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'more'); ALTER STREAM more RENAME TO extra;"
        "INSERT INTO extra SELECT * FROM deals WHERE deals.qty > 1;"
        "ALTER STREAM deals ADD COLUMN coupon VARCHAR; ALTER TABLE sold RENAME TO by_most;",
    )
    run(settings, "INSERT INTO deals (shop, qty, coupon) VALUES ('a', 7, 'x');")
    take_in(settings)
    assert asked(settings, "SELECT * FROM by_most WHERE shop = 'a'") == [("a", 3, 13, 7)]
    assert asked(settings, "SELECT * FROM both") == [("a", "Anna"), ("b", "Bert")]
    assert len(asked(settings, "SELECT * FROM extra")) == 3
    catalog = Catalog(lake)
    found = catalog.get("both")
    assert isinstance(found, View)
    assert found.inputs == ("by_shop", "shops")
    assert_correct(lake, PIPELINE)
    assert wrong(settings) == []
    assert run(settings, "DROP STREAM extra; DROP VIEW both;") == [
        "'extra__insert_1' dropped\n'extra' dropped",
        "'both' dropped",
    ]


def test_what_is_shown_says_the_new_names(settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALL)
    [sold, listed, queries] = Interpreter(settings).run("DESCRIBE `Named shops` EXTENDED; SHOW VIEWS; SHOW QUERIES;")
    assert isinstance(sold, Document)
    assert sold.data["name"] == "Named shops"
    assert sold.data["stored_as"] == "named"
    assert sold.data["reads"] == ["sold", "stores"]
    assert sold.data["vector"].keys() == {"sold", "stores"}
    assert "'sold' from version" in sold.data["reason"]
    text = "CREATE MATERIALIZED VIEW `Named shops` AS SELECT s.name, b.n FROM sold b JOIN stores s ON s.id = b.shop"
    assert sold.data["sql"] == text
    assert isinstance(listed, Answered)
    assert [row[0] for row in listed.rows] == ["sold", "Named shops", "all_deals", "all_shops"]
    assert isinstance(queries, Answered)
    assert "SELECT * FROM deals" in [row[4] for row in queries.rows]
    tables = [row[1] for row in status(settings).rows]
    assert tables[:3] == ["deals", "stores__log", "stores"]
    [plan] = Interpreter(settings).run("EXPLAIN sold")
    assert isinstance(plan, Document)
    assert plan.text.splitlines()[:2] == ["'deals' is stored as `sales`", "'sold' is stored as `by_shop`"]


def test_applying_the_file_again(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALL)
    before = Catalog(lake).definitions()
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(FILE)
    plan = str(plan_apply(file, settings)).splitlines()
    assert plan[1:4] == ["  unchanged stream 'deals'", "  unchanged table 'stores'", "  unchanged table 'sold'"]
    assert {change.outcome for change in apply(file, settings).changes} == {"unchanged"}
    assert Catalog(lake).definitions() == before
    # With the former names nothing is made anew beside what has them no more.
    file.write_text(SALES + SHOPS + VIEWS)
    for attempt in (plan_apply, apply):
        with pytest.raises(NameTaken, match="`sales` is called 'deals' now") as caught:
            attempt(file, settings)
        assert caught.value.where == f"{file}, line 1, column 1"
        assert "write CREATE … deals" in str(caught.value.hint)
    file.write_text(FILE.replace("FROM deals GROUP BY", "FROM sales GROUP BY"))
    with pytest.raises(UnknownName, match="`sales` is called 'deals' now") as unknown:
        apply(file, settings)
    assert unknown.value.hint == "write deals"
    assert Catalog(lake).definitions() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INSERT INTO deals (shop, qty) VALUES ('a', 'shops')", "column 'qty' takes INT, not 'shops'"),
        ("SELECT 'sales' + 1 AS x FROM deals", "'sales'"),
        ("INSERT INTO sold SELECT * FROM deals WHERE shop = 'by_shop'", "'sold' is a table"),
        ("SELECT shops FROM stores", "unknown column 'shops'"),
        ("CREATE STREAM x (a INT) WITH (KAFKA_TOPIC = 'x', VALUE_FORMAT = 'sales')", "sales"),
        ("DROP TABLE stores", "'stores' is read by 'Named shops'"),
        ("INSERT INTO sold VALUES ('by_shop', 1, 1)", "'sold' is a view"),
        ("CREATE STREAM s2 AS SELECT shop, COUNT(*) AS n FROM deals GROUP BY shop", "'s2' is a table"),
    ],
)
def test_an_error_has_new_names_of_definitions_and_values_as_they_are(settings: Settings, text: str, said: str) -> None:
    run(settings, ALL)
    with pytest.raises(SqlError) as caught:
        run(settings, text)
    assert said in caught.value.message
    for stored in ("by_shop", "named", "everything"):
        assert stored not in caught.value.message


def test_names_in_a_chain_and_back(settings: Settings, lake: LakeLayout) -> None:
    for before, after in (("by_shop", "b"), ("b", "c"), ("c", "by_shop"), ("by_shop", "d"), ("d", "b")):
        run(settings, f"ALTER TABLE {before} RENAME TO {after}")
        assert len(asked(settings, f"SELECT * FROM {after}")) == 2
        with pytest.raises(UnknownName):
            asked(settings, f"SELECT * FROM {before}")
        run(settings, f"INSERT INTO sales (shop, qty) VALUES ('{after[0]}', 1)")
    assert run(settings, "ALTER TABLE b RENAME TO b") == ["'b' is called so already"]
    run(settings, "CREATE MATERIALIZED VIEW c AS SELECT * FROM b; CREATE MATERIALIZED VIEW d AS SELECT * FROM c;")
    take_in(settings)
    assert rows(lake, "by_shop") == rows(lake, "d")
    assert run(settings, "DROP TABLE b CASCADE")[0].splitlines()[-1] == "'b' dropped"
    run(settings, VIEWS.partition("CREATE MATERIALIZED")[0])
    assert Catalog(lake).name_map.names == {}
    take_in(settings)
    assert_correct(lake, PIPELINE)


@pytest.mark.parametrize("seed", range(20) if AT_LENGTH else [1])
def test_names_that_change_at_random_between_epochs(seed: int, settings: Settings, lake: LakeLayout) -> None:
    """Every view at every epoch equals its SQL recomputed by DuckDB, whatever is called what meanwhile."""
    dice = random.Random(seed)
    kinds = {"sales": "STREAM", "shops": "TABLE", "by_shop": "TABLE", "named": "VIEW", "everything": "VIEW"}
    called = {name: name for name in kinds}
    for epoch in range(3):
        for stored in dice.sample(list(kinds), 3):
            following = stored if dice.random() < 0.2 else f"n{epoch}_{stored}"
            run(settings, f"ALTER {kinds[stored]} {called[stored]} RENAME TO {following}")
            called[stored] = following
        shop = dice.choice("abcd")
        run(settings, f"INSERT INTO {called['sales']} (shop, qty) VALUES ('{shop}', {dice.randrange(9)})")
        run(settings, f"INSERT INTO {called['shops']} (id, name) VALUES ('{shop}', 'N{epoch}')")
        if epoch == 1:
            columns = "shop, COUNT(*) AS n, SUM(qty) AS total, MIN(qty) AS least"
            name = called["by_shop"]
            run(settings, f"CREATE OR REPLACE TABLE {name} AS SELECT {columns} FROM {called['sales']} GROUP BY shop")
            extra = f"SELECT {name}.n FROM {name} WHERE total > 1"
            run(settings, f"CREATE MATERIALIZED VIEW extra AS {extra}")
        take_in(settings)
        assert_correct(lake, PIPELINE)
        assert asked(settings, f"SELECT * FROM {called['by_shop']}") == rows(lake, "by_shop")
    assert wrong(settings) == []


# --- readers ------------------------------------------------------------------------------------------------------


def test_subscribers_and_replicas_go_on(settings: Settings, lake: LakeLayout) -> None:
    [live] = Interpreter(settings).run("SELECT id, name FROM shops EMIT CHANGES LIMIT 3")
    assert isinstance(live, LiveRows)
    seen = [next(live.rows), next(live.rows)]
    table = lake.table("shops")
    replica = Replica("shops", MemoryStore(), Layout(reader.schema(table), ("id",)))
    version = Follower(table, replica, "r").catch_up().version
    run(settings, ALL)
    run(settings, "INSERT INTO stores VALUES ('c', 'Cleo');")
    take_in(settings)
    assert [*seen, *live.rows] == [("a", "Anna"), ("b", "Bert"), ("c", "Cleo")]
    assert Follower(table, replica, "r").catch_up().version == version + 1
    with replica.reading() as now:
        assert now.get(("c",)) == {"id": "c", "name": "Cleo"}


def test_a_server_and_python_code_see_the_new_names(settings: Settings, lake: LakeLayout) -> None:
    catalogued = Catalogued(lake)
    assert catalogued.catalog.name_map.stored("stores") == "stores"
    opened = OpenLake(settings)
    before = opened.version("shops")
    run(settings, ALL)
    wait_until(lambda: catalogued.catalog.name_map.stored("stores") == "shops", "the server does not see it")
    assert opened.names() == ("deals", "stores", "sold", "Named shops", "all_deals", "all_shops")
    assert opened.version("stores") == before
    assert opened.arrow("stores").num_rows == opened.changes("stores")["__weight"].to_pylist().count(1)
    assert opened.query("SELECT stores.name FROM stores WHERE id = 'a'") == [{"name": "Anna"}]
    with pytest.raises(UnknownName, match="`shops` is called 'stores' now"):
        opened.arrow("shops")


def test_a_partial_view_goes_on(settings: Settings, lake: LakeLayout) -> None:
    run(
        settings,
        "CREATE MATERIALIZED VIEW part WITH (STATE = 'partial') AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;"
        "ALTER VIEW part RENAME TO counted; ALTER STREAM sales RENAME TO deals;"
        "INSERT INTO deals (shop, qty) VALUES ('a', 9);",
    )
    take_in(settings)
    assert asked(settings, "SELECT counted.n FROM counted WHERE shop = 'a'") == [(3,)]


def test_a_backup_has_the_names(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    run(settings, ALL)
    execute_backup(settings, plan_backup(settings, tmp_path / "backup"))
    other = load_settings(lake=tmp_path / "other")
    execute_restore(plan_restore(tmp_path / "backup", other.lake))
    assert asked(other, "SELECT * FROM sold") == rows(lake, "by_shop")


# --- kills --------------------------------------------------------------------------------------------------------


def _renamed(folder: Path) -> None:
    run(load_settings(lake=folder), "ALTER TABLE by_shop RENAME TO sold")


def _replaced(folder: Path) -> None:
    run(
        load_settings(lake=folder),
        "CREATE OR REPLACE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop",
    )


@pytest.mark.kill
@pytest.mark.parametrize("place", [*(["before-called"] if AT_LENGTH else []), "before-rename", "after-called"])
def test_a_kill_leaves_the_former_name_or_the_new_one(place: str, settings: Settings, lake: LakeLayout) -> None:
    assert exit_code(_renamed, lake.root, failpoint=place) == KILLED
    name, other = ("sold", "by_shop") if place == "after-called" else ("by_shop", "sold")
    assert len(asked(settings, f"SELECT * FROM {name}")) == 2
    with pytest.raises(UnknownName):
        asked(settings, f"SELECT * FROM {other}")
    if name == "by_shop":
        _renamed(Path(str(lake.root)))
    run(settings, "INSERT INTO sales (shop, qty) VALUES ('a', 3)")
    take_in(settings)
    assert asked(settings, "SELECT * FROM sold WHERE shop = 'a'") == [("a", 3, 9)]
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
@pytest.mark.parametrize("place", ["after-replacement-intent:1", "after-log-entry:2"])
def test_a_name_that_changes_while_a_replacement_is_left_half_done(
    place: str, settings: Settings, lake: LakeLayout
) -> None:
    run(settings, "DROP VIEW named")
    assert exit_code(_replaced, lake.root, failpoint=place) in (KILLED, 0)
    run(settings, "ALTER TABLE by_shop RENAME TO sold")
    drain(settings, PIPELINE)  # ends what was begun
    assert intents.begun_replacements(lake) == []
    assert asked(settings, "SELECT shop, n FROM sold") == [("a", 2), ("b", 1)]
    assert [column.name for column in _view(lake, "by_shop").columns] == ["shop", "n"]
    assert_correct(lake, PIPELINE)


def _view(lake: LakeLayout, name: str) -> View:
    found = Catalog(lake).get(name)
    assert isinstance(found, View)
    return found


def test_an_intent_from_before_keeps_the_name(settings: Settings, lake: LakeLayout) -> None:
    with locked(lake.catalog):
        intents.put_replacement(Replacement(_view(lake, "all_shops"), refused="for a test"), lake)
    run(settings, "ALTER VIEW all_shops RENAME TO every_shop")
    Catalog(lake).replace(_view(lake, "all_shops"))
    assert Catalog(lake).name_map.names == {"all_shops": "every_shop"}


@pytest.mark.parametrize("cut", [40, 10])
def test_a_broken_definition_is_registered_again_by_its_new_name(
    cut: int, settings: Settings, lake: LakeLayout
) -> None:
    run(settings, ALL)
    file = lake.catalog / "by_shop.json"
    assert isinstance(file, Path)
    file.write_bytes(file.read_bytes()[:-cut])
    said = run(settings, FILE)
    assert [each for each in said if "unchanged" not in each] == ["table 'sold' repaired (pipeline 'shop')"]
    assert asked(settings, "SELECT shop, n FROM sold") == [("a", 2), ("b", 1)]
    take_in(settings)
    assert wrong(settings) == []


def test_a_former_name_is_free_for_another_definition(settings: Settings, lake: LakeLayout) -> None:
    run(settings, "ALTER TABLE by_shop RENAME TO sold; ALTER VIEW everything RENAME TO by_shop;")
    assert len(asked(settings, "SELECT * FROM by_shop")) == 3
    assert len(asked(settings, "SELECT * FROM sold")) == 2
    assert Catalog(lake).name_map.names == {"by_shop": "sold", "everything": "by_shop"}
    assert run(settings, "DROP VIEW by_shop") == ["'by_shop' dropped"]
    with pytest.raises(UnknownName, match="`by_shop` is called 'sold' now"):
        asked(settings, "SELECT * FROM by_shop")


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "error", "told"),
    [
        ("ALTER TABLE nope RENAME TO x", UnknownName, "unknown stream, table or view 'nope'"),
        ("ALTER TABLE by_shop RENAME TO x", UnknownName, "`by_shop` is called 'sold' now"),
        ("ALTER STREAM sold RENAME TO x", InvalidQuery, "'sold' is no stream"),
        ("ALTER VIEW sales RENAME TO x", InvalidQuery, "'sales' is no view"),
        ("ALTER STREAM sales RENAME TO shops", NameTaken, "'shops' is defined already"),
        ("ALTER STREAM sales RENAME TO sold", NameTaken, "'sold' is defined already"),
        ("ALTER STREAM sales RENAME TO `Sold`", NameTaken, "the names 'sold' and 'Sold' differ only in case"),
        ("ALTER STREAM sales RENAME TO sales__log", InvalidQuery, "is a name that Strandline makes itself"),
        ("ALTER STREAM sales RENAME TO a.b", SqlError, "not expected"),
        ("ALTER STREAM sales RENAME COLUMN qty TO n", NotSupported, "the fields of its records"),
        ("ALTER STREAM IF EXISTS sales ADD c INT", SqlError, "expected RENAME TO"),
        ("CREATE STREAM by_shop (a INT) WITH (KAFKA_TOPIC = 'x')", NameTaken, "`by_shop` is called 'sold' now"),
        (
            "CREATE STREAM `By_Shop` (a INT) WITH (KAFKA_TOPIC = 'x')",
            NameTaken,
            "`by_shop` is the name under which 'sold'",
        ),
        ("CREATE STREAM `Sold` (a INT) WITH (KAFKA_TOPIC = 'x')", NameTaken, "'sold' and 'Sold' differ only"),
        ("DROP TABLE sold", SqlError, "'sold' is read by 'named'"),
        ("CREATE TABLE t AS SELECT nope FROM sold", SqlError, "unknown column 'nope'"),
    ],
)
def test_what_is_refused(
    statement: str, error: type[SqlError], told: str, settings: Settings, lake: LakeLayout
) -> None:
    run(settings, "ALTER TABLE by_shop RENAME TO sold")
    before = Catalog(lake)
    with pytest.raises(error, match=told) as caught:
        run(settings, statement)
    assert caught.value.line == 1
    after = Catalog(lake)
    assert (after.definitions(), after.name_map) == (before.definitions(), before.name_map)


def test_if_exists_and_what_is_not_there(settings: Settings, lake: LakeLayout) -> None:
    assert run(settings, "ALTER TABLE IF EXISTS nope RENAME TO x") == ["'nope' is not there"]
    assert run(settings, "ALTER TABLE IF EXISTS by_shop RENAME TO x") == ["`by_shop` is called `x` from now on"]
    for again in ("by_shop", "x"):
        assert run(settings, f"ALTER TABLE {again} RENAME TO x") == ["'x' is called so already"]
