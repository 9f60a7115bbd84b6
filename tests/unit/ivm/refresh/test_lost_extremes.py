"""A group that lost its MIN or MAX is computed again from the rows of a join that can decide it, and from no other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.model.tables import TOMBSTONE
from strandline.state_store.arrangements import Arrangements
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog
from tests.support.served_lake import ServedLake

TABLES = """
CREATE TABLE info (product BIGINT PRIMARY KEY, category VARCHAR, length INT, weight DOUBLE);
CREATE TABLE visit (id BIGINT PRIMARY KEY, product BIGINT, size INT);
"""
JOINED = "info i JOIN visit v ON i.product = v.product"
VIEWS = {
    "longest": f"SELECT i.category, MAX(i.length) AS x FROM {JOINED} GROUP BY i.category",
    "other_way": "SELECT i.category, MIN(i.length) AS x FROM visit v JOIN info i ON i.product = v.product"
    " GROUP BY i.category",
    "both_ends": f"SELECT i.category, MAX(i.length) AS x, MIN(i.weight) AS y, COUNT(*) AS n FROM {JOINED}"
    " GROUP BY i.category",
    "filtered": f"SELECT i.category, MAX(i.length) FILTER (WHERE v.size > 2) AS x FROM {JOINED} WHERE v.size <> 4"
    " GROUP BY i.category",
    "of_all": f"SELECT MAX(i.weight) AS x FROM {JOINED}",
    "of_two": f"SELECT i.category, v.size, MAX(i.length) AS x FROM {JOINED} GROUP BY i.category, v.size",
    "computed": f"SELECT i.category, MAX(i.length + v.size) AS x FROM {JOINED} GROUP BY i.category",
    "padded": "SELECT i.category, MAX(i.length) AS x FROM info i LEFT JOIN visit v ON i.product = v.product"
    " GROUP BY i.category",
    "kept_right": "SELECT i.category, MAX(i.length) AS x FROM info i RIGHT JOIN visit v ON i.product = v.product"
    " GROUP BY i.category",
    "beside_others": f"SELECT i.category, MAX(i.length) AS x, MAX_BY(i.product, i.product) AS y FROM {JOINED}"
    " GROUP BY i.category",
}
BOUNDED = {"longest", "other_way", "both_ends", "filtered", "of_all", "padded"}
"""The views in which the columns of one input tell which of its rows can decide."""
WEIGHTS = (0.5, 0.0, float("nan"), float("inf"), None, 7.25)


def drawn(chance: random.Random, table: str) -> dict[str, Any]:
    """A new row, another one in its place, or none any more."""
    key, words = {"info": ("product", ("category", "length", "weight")), "visit": ("id", ("product", "size"))}[table]
    values = {
        "category": chance.choice([*"ab", None]),
        "length": chance.choice([*range(12), None]),
        "weight": chance.choice(WEIGHTS),
        "product": chance.choice([*range(1, 25), None]),
        "size": chance.randint(0, 4),
    }
    row = {key: chance.randint(1, 24), **{word: values[word] for word in words}}
    return row if chance.random() < 0.6 else {key: row[key], **dict.fromkeys(words), TOMBSTONE: True}


def rows(lake: ServedLake, view: str) -> list[str]:
    return sorted(map(repr, (tuple(row.values()) for row in reader.read_rows(lake.lake.table(view)).to_pylist())))


@pytest.mark.parametrize("seed", range(3))
def test_the_view_equals_its_query_by_key_and_by_scan(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(DuckDbRuntime, "_hold", lambda *_, **__: None)
    made = "".join(f"CREATE MATERIALIZED VIEW {name} AS {query};" for name, query in VIEWS.items())
    by_key = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=1, patience=1, largest_share=1000.0)
    for name, arrangements in (("looking", by_key), ("scanning", None)):
        chance = random.Random(seed)
        lake = ServedLake(settings.model_copy(update={"lake": tmp_path / name}), TABLES + made)
        with DuckDBEngine("256MB", 1, arrangements) as engine, duckdb.connect() as truth:
            for epoch in range(7):
                for table in chance.sample(("info", "visit"), chance.randint(1, 2) if epoch else 2):
                    # Several events of a key within an epoch: what came may have gone in it too.
                    lake.append(table, [drawn(chance, table) for _ in range(chance.randint(1, 9) if epoch else 40)])
                lake.refresh(engine)
                for table in ("info", "visit"):
                    truth.register(table, reader.read_rows(lake.lake.table(table)))
                for view, query in VIEWS.items():
                    wanted = sorted(map(repr, truth.execute(query).fetchall()))
                    assert rows(lake, view) == wanted, (name, view, epoch)


@pytest.mark.parametrize("view", VIEWS)
def test_only_columns_of_an_input_that_is_not_padded_tell_what_can_decide(view: str) -> None:
    catalog = MemoryCatalog()
    for statement in (*TABLES.strip().splitlines(), f"CREATE MATERIALIZED VIEW {view} AS {VIEWS[view]}"):
        run(statement.rstrip(";"), catalog)
    stage = plan(catalog.get(view), catalog).stages[-1]
    text = maintenance(stage, "duckdb", {each.alias for each in inputs_of(stage)})
    assert ("SEMI JOIN __f ON" in text.partition("body_new AS")[2].partition("__b AS")[0]) == (view in BOUNDED)


def test_rows_below_what_came_are_not_looked_up(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the hundred visits of each product that is shorter than the new longest one, none is read."""
    monkeypatch.setattr(DuckDbRuntime, "_hold", lambda *_, **__: None)
    by_key = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=1, patience=1, largest_share=1000.0)
    made = f"CREATE MATERIALIZED VIEW longest AS {VIEWS['longest']};"
    lake = ServedLake(settings.model_copy(update={"lake": tmp_path / "lake"}), TABLES + made)
    with DuckDBEngine("256MB", 1, by_key) as engine:
        products = [{"product": each, "category": "a", "length": each, "weight": None} for each in range(1, 11)]
        lake.append("info", products)
        lake.append("visit", [{"id": n, "product": 1 + n % 10, "size": 0} for n in range(1000)])
        lake.refresh(engine)
        lake.append("info", [{**products[9], "length": None, TOMBSTONE: True}])
        lake.append("visit", [{"id": 1001, "product": 9, "size": 0}])
        lake.refresh(engine)
    head = reader.head(lake.lake.table("longest"))
    assert head is not None
    record = log.read_record(lake.lake.table("longest"), head.version)
    assert rows(lake, "longest") == ["('a', 9)"]
    assert record is not None
    found = int(str(record.reason).rpartition("; ")[2].split(" rows looked up")[0].replace(",", ""))
    # The visits of the product that went, and of the one that is the longest now; the rows of info; the group.
    assert 200 <= found < 250, record.reason
