"""The examples of the state-store article: a join with MAX over two tables, under each state strategy.

info(product, category)   Apple Fruit, Banana Fruit, Carrot Vegetable, Potato Vegetable
visit(product, user, length)   Apple Alice 10, Apple Bob 20, Carrot Bob 50, Banana Alice 40, Potato Eve 60
the longest visit of each category: Fruit 40, Vegetable 60
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.support.duck_lake import DuckLake
from tests.support.invariants import assert_correct

STRATEGIES = ("full", "shared")

TABLES = """
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR)
  WITH (KAFKA_TOPIC='info', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE visit (product VARCHAR PRIMARY KEY, `user` VARCHAR PRIMARY KEY, length INT)
  WITH (KAFKA_TOPIC='visit', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
LONGEST = """
CREATE MATERIALIZED VIEW longest_{state} WITH (STATE='{state}') AS SELECT category, MAX(length) AS max_length
  FROM info JOIN visit ON info.product = visit.product GROUP BY category;
"""

INFO = (("Apple", "Fruit"), ("Banana", "Fruit"), ("Carrot", "Vegetable"), ("Potato", "Vegetable"))
VISITS = (("Apple", "Alice", 10), ("Apple", "Bob", 20), ("Carrot", "Bob", 50), ("Banana", "Alice", 40))
LAST_VISIT = ("Potato", "Eve", 60)

Row = dict[str, Any]


def info(product: str, category: str) -> Row:
    return {"product": product, "category": category}


def visit(product: str, user: str, length: int | None = None) -> Row:
    return {"product": product, "user": user, "length": length}


class Article:
    """The two tables with a view under one strategy, in DuckDB."""

    def __init__(self, lake: LakeLayout, state: str) -> None:
        self.view = f"longest_{state}"
        catalog = catalog_of(lake, TABLES + LONGEST.format(state=state))
        self.tables = DuckLake(catalog, catalog.definitions())
        self.events = 0
        self.feed("info", *(info(*row) for row in INFO))
        self.feed("visit", *(visit(*row) for row in VISITS))
        self.tables.refresh()

    def feed(self, table: str, *rows: Row) -> None:
        """Events of a table: rows put, or with `_tombstone` taken away."""
        placed = [row | place(self.events + number) for number, row in enumerate(rows)]
        self.events += len(rows)
        self.tables.feed(f"{table}__log", placed)

    def change(self, table: str, *rows: Row) -> list[tuple[int, str, int]]:
        """One epoch with those events: what it changes in the view."""
        self.feed(table, *rows)
        self.tables.refresh()
        changes = self.tables.changes(self.view)
        return [(weight, row["category"], row["max_length"]) for weight, row in changes]

    def rows(self) -> dict[str, int]:
        return {row["category"]: row["max_length"] for row in self.tables.rows(self.view)}


def place(number: int) -> Row:
    """The meta columns of event `number`, of one partition."""
    at = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=number)
    return {"_partition": 0, "_offset": number, "_timestamp": at, "_stream_time": at}


@pytest.fixture(params=STRATEGIES)
def article(lake: LakeLayout, request: pytest.FixtureRequest) -> Article:
    return Article(lake, request.param)


def test_the_longest_visit_of_each_category(article: Article) -> None:
    assert article.rows() == {"Fruit": 40, "Vegetable": 50}
    article.change("visit", visit(*LAST_VISIT))
    assert article.rows() == {"Fruit": 40, "Vegetable": 60}


def test_a_longer_visit_deletes_the_old_row_and_inserts_the_new_one(article: Article) -> None:
    assert article.change("visit", visit(*LAST_VISIT)) == [(-1, "Vegetable", 50), (1, "Vegetable", 60)]


def test_deleting_the_longest_visit_finds_the_next_one(article: Article) -> None:
    article.change("visit", visit(*LAST_VISIT))
    changes = article.change("visit", visit("Banana", "Alice") | {"_tombstone": True})
    assert changes == [(-1, "Fruit", 40), (1, "Fruit", 20)]
    assert article.rows() == {"Fruit": 20, "Vegetable": 60}


def test_moving_a_product_moves_its_visits(article: Article) -> None:
    article.change("visit", visit(*LAST_VISIT))
    assert article.change("info", info("Carrot", "Fruit")) == [(-1, "Fruit", 40), (1, "Fruit", 50)]
    assert article.rows() == {"Fruit": 50, "Vegetable": 60}


def test_a_category_without_visits_is_no_row(article: Article) -> None:
    assert article.change("info", info("Carrot", "Fruit")) == [
        (-1, "Fruit", 40),
        (1, "Fruit", 50),
        (-1, "Vegetable", 50),
    ]


def test_a_shorter_visit_changes_nothing(article: Article) -> None:
    assert article.change("visit", visit("Apple", "Eve", 5)) == []


ABC = """
CREATE TABLE a (id INT PRIMARY KEY, x INT) WITH (KAFKA_TOPIC='a', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE b (id INT PRIMARY KEY, x INT) WITH (KAFKA_TOPIC='b', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE c (id INT PRIMARY KEY, x INT) WITH (KAFKA_TOPIC='c', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
"""


@pytest.mark.parametrize("state", STRATEGIES)
def test_two_joins_with_one_table_keep_its_rows_once(lake: LakeLayout, state: str) -> None:
    """A ⋈ B and B ⋈ C both look B up in B's own table: no stage keeps B's rows by themselves."""
    views = f"""
    CREATE MATERIALIZED VIEW ab WITH (STATE='{state}') AS SELECT a.id AS a, b.id AS b FROM a JOIN b ON a.x = b.x;
    CREATE MATERIALIZED VIEW bc WITH (STATE='{state}') AS SELECT b.id AS b, c.id AS c FROM b JOIN c ON b.x = c.x;
    """
    catalog = catalog_of(lake, ABC + views)
    tables = DuckLake(catalog, catalog.definitions())
    read = [
        {each.relation.name for each in inputs_of(stage)}
        for name in ("ab", "bc")
        for stage in plan(catalog.get(name), catalog).stages
    ]
    assert {"a", "b"} in read
    assert {"b", "c"} in read
    assert {"b"} not in read
    for name in "abc":
        tables.feed(f"{name}__log", [{"id": number, "x": number // 2} | place(number) for number in range(4)])
    tables.refresh()
    expected = {(left, right) for left in range(4) for right in range(4) if left // 2 == right // 2}
    assert {(row["a"], row["b"]) for row in tables.rows("ab")} == expected
    assert {(row["b"], row["c"]) for row in tables.rows("bc")} == expected


@pytest.mark.parametrize("state", STRATEGIES)
def test_a_join_of_three_tables_is_one_delta_join(lake: LakeLayout, state: str) -> None:
    """Two of the three are never joined by themselves; a change of one input reads the others in their own tables."""
    view = f"""
    CREATE MATERIALIZED VIEW abc WITH (STATE='{state}') AS SELECT a.id AS a, b.id AS b, c.id AS c
      FROM a, b, c WHERE a.x = b.x AND a.x = c.x;
    """
    catalog = catalog_of(lake, ABC + view)
    definition = catalog.get("abc")
    stage, *others = plan(definition, catalog).stages
    assert all({each.relation.name for each in inputs_of(other)} == {stage.table} for other in others)
    aliases = {each.relation.name: each.alias for each in inputs_of(stage)}
    assert sorted(aliases) == ["a", "b", "c"]
    text = maintenance(stage, "duckdb", {aliases["b"]})
    read = {name for name in ("a", "b", "c") for side in ("delta", "old", "new") if f'"{side}_{aliases[name]}"' in text}
    assert read == {"a", "b", "c"}
    assert [name for name in "abc" if f'"delta_{aliases[name]}"' in text] == ["b"]

    tables = DuckLake(catalog, catalog.definitions())
    for name in "abc":
        tables.feed(f"{name}__log", [{"id": number, "x": 1} | place(number) for number in range(2)])
    tables.refresh()
    assert len(tables.rows("abc")) == 8
    tables.feed("b__log", [{"id": 0, "x": 2} | place(9)])
    tables.refresh()
    assert len(tables.rows("abc")) == 4
    assert all(weight == -1 and row["b"] == 0 for weight, row in tables.changes("abc"))


def test_the_article_on_spark_and_delta(spark: SparkSession, settings: Settings) -> None:
    """Both strategies in one pipeline: the same rows, changes and digest after every step."""
    interpreter = Interpreter(settings, "article")
    views = [f"longest_{state}" for state in STRATEGIES]
    list(interpreter.run(TABLES + "".join(LONGEST.format(state=state) for state in STRATEGIES)))
    tables = {name: _source(interpreter.catalog, name) for name in ("info", "visit")}
    gone = {"product": "Banana", "user": "Alice", "__tombstone": True}
    steps: list[tuple[dict[str, list[Row]], list[tuple[int, str, int]]]] = [
        (
            {"info": [info(*row) for row in INFO], "visit": [visit(*row) for row in VISITS]},
            [(1, "Fruit", 40), (1, "Vegetable", 50)],
        ),
        ({"visit": [visit(*LAST_VISIT)]}, [(-1, "Vegetable", 50), (1, "Vegetable", 60)]),
        ({"visit": [gone], "info": [info("Carrot", "Fruit")]}, [(-1, "Fruit", 40), (1, "Fruit", 50)]),
    ]
    seen = dict.fromkeys(views, -1)
    for events, expected in steps:
        for table, rows in events.items():
            insert_rows(tables[table], rows, settings, interpreter.lake)
        drain(settings, "article", spark)
        for view in views:
            assert sorted(_changes(interpreter.lake, view, seen)) == sorted(expected)
        full, shared = (reader.head(interpreter.lake.table(view)) for view in views)
        assert full is not None
        assert shared is not None
        assert full.record.digest == shared.record.digest
    assert_correct(interpreter.lake, "article")


def _source(catalog: Catalog, name: str) -> Source:
    found = catalog.get(name)
    assert isinstance(found, Source)
    return found


def _changes(lake: LakeLayout, view: str, seen: dict[str, int]) -> list[tuple[int, str, int]]:
    """What the view's changelog holds beyond the version `seen`; moves that on."""
    path = lake.table(view)
    found = reader.read_changes(path, after=seen[view]).select(["__weight", "category", "max_length"]).to_pylist()
    head = reader.head(path)
    assert head is not None
    seen[view] = head.version
    return [(row["__weight"], row["category"], row["max_length"]) for row in found]
