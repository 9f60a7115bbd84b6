"""The oracle itself: a batch recomputation gives what a person works out by hand."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from strandline.jobs.model.tables import WINDOW_BOUNDS
from tests.support import oracle
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.memory_catalog import MemoryCatalog

SOURCES = """
CREATE STREAM visit (product VARCHAR, person VARCHAR, length INT) WITH (KAFKA_TOPIC='visit', VALUE_FORMAT='JSON');
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC='info', VALUE_FORMAT='JSON');
"""
# (product, person, length, second); the last but one is late: the stream's time is 30 then.
VISITS = [
    ("apple", "ann", 10, 0),
    ("apple", "bob", 20, 4),
    ("carrot", "bob", 50, 12),
    ("leek", "eve", None, 30),
    ("apple", "eve", 40, 5),
    ("carrot", "bob", 50, 31),
]
INFOS = [("apple", "fruit", 0), ("carrot", "root", 1), ("carrot", "vegetable", 13), ("plum", "fruit", 14)]

CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "HAVING alone makes one group": ("SELECT 1 AS one FROM visit HAVING 1 < 2", [(1,)]),
    "filter and projection": (
        "SELECT person, length + 1 AS n FROM visit WHERE length > 20",
        [("bob", 51), ("eve", 41), ("bob", 51)],
    ),
    "inner join": (
        "SELECT category, length FROM visit JOIN info ON visit.product = info.product WHERE length = 50",
        [("vegetable", 50), ("vegetable", 50)],
    ),
    "left join": (
        "SELECT person, category FROM visit LEFT JOIN info ON visit.product = info.product WHERE person = 'eve'",
        [("eve", None), ("eve", "fruit")],
    ),
    "full join": (
        "SELECT info.product AS p, COUNT(person) AS n FROM visit FULL OUTER JOIN info ON visit.product = info.product"
        " GROUP BY info.product",
        [("apple", 3), ("carrot", 2), ("plum", 0), (None, 1)],
    ),
    "NOT EXISTS": (
        "SELECT product FROM info WHERE NOT EXISTS (SELECT 1 FROM visit WHERE visit.product = info.product)",
        [("plum",)],
    ),
    "correlated subquery": (
        "SELECT product, (SELECT MAX(length) FROM visit WHERE visit.product = info.product) AS m FROM info",
        [("apple", 40), ("carrot", 50), ("plum", None)],
    ),
    "a list over DISTINCT": (
        "SELECT COUNT(*) AS n, COLLECT_LIST(person) AS p FROM (SELECT DISTINCT person FROM visit) q",
        [(3, ("ann", "bob", "eve"))],
    ),
    "a list over UNION": (
        "SELECT COUNT(*) AS n, COLLECT_LIST(product) AS p"
        " FROM (SELECT product FROM visit UNION SELECT product FROM info) q",
        [(4, ("apple", "carrot", "leek", "plum"))],
    ),
    "aggregates": (
        "SELECT person, SUM(length) AS s, COUNT(DISTINCT product) AS d, TOPK(length, 2) AS t"
        " FROM visit GROUP BY person",
        [("ann", 10, 1, (10,)), ("bob", 120, 2, (50, 50)), ("eve", 40, 2, (40,))],
    ),
    "order of events": (
        "SELECT LATEST_BY_OFFSET(person) AS l, COLLECT_LIST(length) AS c, COLLECT_SET(person) AS s FROM visit",
        [("bob", (10, 20, 50, None, 40, 50), ("ann", "bob", "eve"))],
    ),
    "rollup": (
        "SELECT person, COUNT(*) AS n FROM visit GROUP BY ROLLUP (person)",
        [("ann", 1), ("bob", 3), ("eve", 2), (None, 6)],
    ),
    "having": ("SELECT person FROM visit GROUP BY person HAVING COUNT(*) > 2", [("bob",)]),
    "distinct": ("SELECT DISTINCT person FROM visit", [("ann",), ("bob",), ("eve",)]),
    "except": ("SELECT product FROM visit EXCEPT SELECT product FROM info", [("leek",)]),
    "intersect": (
        "SELECT product FROM visit INTERSECT SELECT product FROM info",
        [("apple",), ("carrot",)],
    ),
    "first of each partition": (
        "SELECT q.person AS p, q.length AS n FROM (SELECT person, length, ROW_NUMBER() OVER"
        " (PARTITION BY person ORDER BY length DESC) AS rn FROM visit) AS q WHERE q.rn <= 1",
        [("ann", 10), ("bob", 50), ("eve", 40)],
    ),
    "tumbling window, late row left out": (
        "SELECT product, COUNT(*) AS n, WINDOWSTART AS ws FROM visit"
        " WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) WHERE product = 'apple' GROUP BY product",
        [("apple", 10_000, 2, 0)],
    ),
    "hopping window": (
        "SELECT person, SUM(length) AS n, WINDOWSTART AS ws FROM visit"
        " WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) WHERE person = 'ann' GROUP BY person",
        [("ann", 10_000, 10, 0), ("ann", 5_000, 10, -5_000)],
    ),
    "session window": (
        "SELECT product, COUNT(*) AS n, WINDOWSTART AS ws, WINDOWEND AS we FROM visit"
        " WINDOW SESSION (5 SECONDS, GRACE PERIOD 1 DAY) GROUP BY product",
        [("apple", 3, 0, 5000), ("carrot", 1, 12000, 12000), ("leek", 1, 30000, 30000), ("carrot", 1, 31000, 31000)],
    ),
    "final windows": (
        "SELECT person, COUNT(*) AS n FROM visit WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 15 SECONDS)"
        " GROUP BY person EMIT FINAL",
        [("ann", 0, 10_000, 1), ("bob", 0, 10_000, 1)],
    ),
}
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def _events(rows: list[tuple[Any, ...]], *names: str) -> list[dict[str, Any]]:
    events, latest = [], 0
    for offset, (*values, second) in enumerate(rows):
        latest = max(latest, second)
        time, stream_time = (BEGIN + timedelta(seconds=each) for each in (second, latest))
        meta = {"_partition": 0, "_offset": offset, "_timestamp": time, "_stream_time": stream_time}
        events.append(dict(zip(names, values, strict=True)) | meta)
    return events


@pytest.mark.parametrize("case", CASES)
def test_a_batch_recomputation_gives_what_was_worked_out_by_hand(case: str, duck: duckdb.DuckDBPyConnection) -> None:
    query, expected = CASES[case]
    catalog = MemoryCatalog()
    kind = "TABLE" if "WINDOW " in query else "MATERIALIZED VIEW"
    run(f"{SOURCES} CREATE {kind} v AS {query};", catalog)
    lake = DuckLake(catalog, catalog.definitions(), duck)
    lake.feed("visit", _events(VISITS, "product", "person", "length"))
    lake.feed("info__log", _events(INFOS, "product", "category"))
    lake.refresh()

    start = int(BEGIN.timestamp() * 1000)
    rows = []
    for row in lake.expected("v"):
        since = {name: row[name] - start for name in ("ws", "we", *WINDOW_BOUNDS) if name in row}
        rows.append(row | since)
    names = list(rows[0])
    assert oracle.counted(rows, names) == Counter(expected)
    lake.close()
