"""Feldera's demo of a medallion architecture, read in its own file: all 15 views as they are printed, maintained.

Of the file only the connectors (WITH) and LATENESS are left out: they say where rows come from, and when Feldera may
forget them. Every view is checked against its recomputation after each epoch, and at the end against DuckDB, which runs
the printed views itself over the same tables.

    git clone --depth 1 https://github.com/feldera/feldera  outside-suites/feldera+feldera
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from strandline.jobs.model.definitions import Column, Source, View
from tests.outside.sqllogic.suites import PLACE
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.examples import examples
from tests.support.memory_catalog import MemoryCatalog

DEMO = PLACE / "feldera+feldera" / "crates/pipeline-manager/demos/sql/01-medallion-architecture.sql"
TABLES, VIEWS = 7, 15
_CONNECTORS = re.compile(r"\) WITH \(.*?\n\);", re.DOTALL)
_LATENESS = re.compile(r" LATENESS INTERVAL '1' HOUR")
_FORMS = (("LOCAL VIEW", "VIEW"), ("MATERIALIZED VIEW", "VIEW"))
_TRUNCATED = re.compile(r"DATE_TRUNC\(([\w.]+), DAY\)")
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_EPOCHS = 3
# Few ids, so that rows meet; words that the views look for, and one that they leave out.
_IDS = {"user_id": 9, "customer_id": 9, "product_id": 6, "supplier_id": 3, "order_id": 24, "warehouse_id": 2}
_WORDS = {
    "customer_tier": ("standard", "silver", "gold", "platinum", "?"),
    "order_status": ("pending", "confirmed", "shipped", "delivered", "cancelled", "returned", "?"),
    "event_type": (
        *("page_view", "product_view", "add_to_cart", "begin_checkout", "purchase"),
        *("restock", "sale_reserve", "cancellation_restock", "return_restock"),
    ),
}


def printed() -> str:
    """The demo's statements without connectors and LATENESS; skips where the file is absent."""
    if not DEMO.is_file():
        pytest.skip(f"{DEMO} is absent: the docstring of this module says how to get it")
    return _LATENESS.sub("", _CONNECTORS.sub(");", DEMO.read_text()))


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("seed", range(examples(1)))
def test_all_views_are_maintained_as_printed(seed: int, db: duckdb.DuckDBPyConnection) -> None:
    text, pick = printed(), random.Random(seed)
    catalog = MemoryCatalog()
    run(text, catalog)
    sources = [each for each in catalog.definitions() if isinstance(each, Source)]
    views = [each for each in catalog.definitions() if isinstance(each, View)]
    assert (len(sources), len(views)) == (TABLES, VIEWS)
    lake = DuckLake(catalog, catalog.definitions(), db)
    try:
        offset = 0
        for epoch in range(_EPOCHS):
            for source in sources:
                count = pick.randint(15, 60) if epoch == 0 else pick.randint(0, 8)
                rows = [_event(source, pick, offset + place) for place in range(count)]
                offset += count
                lake.feed(f"{source.name}__log", rows)
            lake.refresh()
            for view in views:
                names = [each.name for each in view.columns]
                assert _alike(lake.rows(view.name), lake.expected(view.name), names), (epoch, view.name)
        found = {view.name: lake.rows(view.name) for view in views}
        assert sum(bool(rows) for rows in found.values()) >= VIEWS - 1, "the views have too few rows to tell anything"
        for view, rows in _by_duckdb(text, lake, sources, views):
            assert _alike(found[view.name], rows, [each.name for each in view.columns]), view.name
    finally:
        lake.close()


def _event(source: Source, pick: random.Random, offset: int) -> dict[str, Any]:
    row = {column.name: _value(column, pick) for column in source.columns}
    gone = {"_tombstone": True} if pick.random() < 0.06 else {}
    return {**row, **gone, "_partition": 0, "_offset": offset, "_stream_time": _BEGIN, "_timestamp": _BEGIN}


def _value(column: Column, pick: random.Random) -> Any:
    if not column.key and not column.required and pick.random() < 0.05:
        return None
    if column.name in _WORDS:
        return pick.choice(_WORDS[column.name])
    base = column.type.base.value
    if base in ("INT", "BIGINT"):
        return pick.randint(1, _IDS.get(column.name, 30)) if column.key or column.name in _IDS else pick.randint(-1, 9)
    days = timedelta(days=pick.randint(0, 70), hours=pick.randint(0, 23))
    made: dict[str, Any] = {
        "VARCHAR": pick.choice("xyz"),
        "DECIMAL": Decimal(pick.randint(0, 9999)) / 100,
        "TIMESTAMP": _BEGIN + days,
        "DATE": (_BEGIN + days).date(),
        "BOOLEAN": pick.random() < 0.9,
    }
    return made[base]


def _by_duckdb(
    text: str, lake: DuckLake, sources: Sequence[Source], views: Sequence[View]
) -> Iterator[tuple[View, list[dict[str, Any]]]]:
    """The rows of the printed views over the lake's tables, by DuckDB."""
    for form in _FORMS:
        text = text.replace(*form)
    text = _TRUNCATED.sub(r"DATE_TRUNC('day', \1)", text)
    place = f"{lake.schema}_printed"
    lake.db.execute(f"CREATE SCHEMA {place}; SET schema = '{place}'")
    try:
        for source in sources:
            lake.db.execute(f"CREATE TABLE {source.name} AS {lake.visible_sql(source.name)}")
        lake.db.execute(text[text.index("CREATE VIEW") :])
        for view in views:
            yield view, lake.fetch(f"SELECT * FROM {view.name}")
    finally:
        lake.db.execute(f"SET schema = 'main'; DROP SCHEMA {place} CASCADE")


def _alike(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], names: Sequence[str]) -> bool:
    """True if the rows are the same, numbers up to the digits that a quotient of DECIMALs has here."""
    mine, other = ([tuple(map(_plain, (row[name] for name in names))) for row in rows] for rows in (ours, theirs))
    return len(mine) == len(other) and all(
        one == two or (isinstance(one, float) and isinstance(two, float) and abs(one - two) <= 1e-5 + 1e-6 * abs(two))
        for row, another in zip(sorted(mine, key=_place), sorted(other, key=_place), strict=True)
        for one, two in zip(row, another, strict=True)
    )


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal | int | float) and not isinstance(value, bool) else value


def _place(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{each:.3f}" if isinstance(each, float) else repr(each) for each in row)
