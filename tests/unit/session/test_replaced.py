"""CREATE OR REPLACE of a view that has rows: offline, by the process that says it."""

from __future__ import annotations

import pytest

from jobs.model.settings import Settings
from jobs.operate.verify.verify import verify
from jobs.run.pipeline import drain
from jobs.session.interpreter import Interpreter
from state_store.delta import reader
from state_store.layout import Lake
from tests.support import lake_tables
from tests.support.invariants import assert_correct

SHOP = """
CREATE STREAM sales (shop VARCHAR, item VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW most AS SELECT MAX(n) AS m FROM by_shop;
CREATE MATERIALIZED VIEW large AS SELECT shop, n FROM by_shop WHERE n > 1;
"""
NEXT = """CREATE OR REPLACE TABLE by_shop AS
  SELECT shop, COUNT(*) AS n, SUM(qty) AS total, MAX(qty) AS most FROM sales WHERE qty > 1 GROUP BY shop"""
EVENTS = [{"shop": s, "item": i, "qty": q} for s, i, q in (("a", "x", 1), ("a", "y", 5), ("b", "x", 2), ("c", "x", 1))]


@pytest.fixture
def shop(settings: Settings, lake: Lake) -> Interpreter:
    session = Interpreter(settings, "shop")
    list(session.run(SHOP))
    lake_tables.events(lake, "sales", EVENTS)
    drain(settings, "shop")
    return session


def _rows(lake: Lake, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in reader.read_rows(lake.table(name)).to_pylist())


def test_a_view_is_replaced_by_the_difference(shop: Interpreter, settings: Settings, lake: Lake) -> None:
    before = reader.head(lake.table("by_shop"))
    assert before is not None
    list(shop.run(NEXT))
    after = reader.head(lake.table("by_shop"))
    assert after is not None
    assert (after.record.table, after.version) == (before.record.table, before.version + 1)
    assert _rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 1, 2, 2)]
    drain(settings, "shop")
    assert _rows(lake, "large") == []
    assert _rows(lake, "most") == [(1,)]
    assert_correct(lake, "shop")
    lake_tables.events(lake, "sales", [{"shop": "b", "item": "x", "qty": 9}])
    drain(settings, "shop")
    assert _rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 2, 11, 9)]
    assert_correct(lake, "shop")
    checks = verify(settings, ["by_shop", "most", "large"], deep=True)
    assert [each for each in checks if each.ok is False] == []
