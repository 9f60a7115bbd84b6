"""Views over four small sources and a random history: each must be its own SELECT after every epoch.

For features that the grammar of `tests/properties` does not write: a line of SQL is a test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from tests.support import oracle
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.memory_catalog import MemoryCatalog
from tests.support.oracle import counted

SOURCES = """
CREATE STREAM s (k VARCHAR KEY, v INT, x DOUBLE, d DECIMAL(8, 2), tags ARRAY<INT>, b BOOLEAN, ts TIMESTAMP, day DATE);
CREATE STREAM c (k VARCHAR KEY, n INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
CREATE TABLE u (id INT PRIMARY KEY, k VARCHAR, n INT);
"""
_NAMES = ("s", "c", "t", "u")
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_EPOCHS = 4
_MOST_EVENTS = 6


def defined(sql: str) -> Catalog:
    """A catalog with the sources and what `sql` defines: statements, or one SELECT, which becomes the view `v`."""
    catalog = MemoryCatalog()
    run(SOURCES, catalog)
    run(sql if sql.lstrip().startswith(("CREATE", "INSERT")) else f"CREATE MATERIALIZED VIEW v AS {sql};", catalog)
    return catalog


def wrong(sql: str, db: duckdb.DuckDBPyConnection, seed: int = 0) -> str:
    """What is wrong with the views of `sql` after some epoch of a random history; empty when nothing is."""
    catalog = defined(sql)
    views = [each.name for each in catalog.definitions() if each.name not in _NAMES]
    return _held(catalog, db, seed, lambda lake: next(filter(None, map(lake.wrong, views)), ""), views)


def unlike_text(select: str, db: duckdb.DuckDBPyConnection, seed: int = 0, meant: str = "") -> str:
    """What is wrong with a view of `select`, which must be SQL of DuckDB too, by that text as it stands; or by `meant`.

    It is run over the rows of the sources, without anything of ours that reads queries. Empty when nothing is wrong.
    """

    def found(lake: DuckLake) -> str:
        sources = ", ".join(f"{name} AS ({lake.visible_sql(name)})" for name in _NAMES)
        # WITH of the text itself is one inside.
        expected = lake.fetch(f"WITH {sources} SELECT * FROM ({meant or select}) AS __text")
        view = lake.catalog.get("v")
        assert isinstance(view, View)
        names = [column.name for column in view.columns]
        rows = [dict(zip(names, row.values(), strict=True)) for row in expected]
        return oracle.difference(view, counted(lake.rows("v"), names), counted(rows, names))

    return _held(defined(select), db, seed, found, ["v"])


def _held(
    catalog: Catalog, db: duckdb.DuckDBPyConnection, seed: int, found: Callable[[DuckLake], str], views: list[str]
) -> str:
    """What `found` says after some epoch of a random history; empty where it never says anything."""
    lake = DuckLake(catalog, catalog.definitions(), db)
    seen = 0
    try:
        for epoch, batch in enumerate(_history(random.Random(seed))):
            for log, rows in batch.items():
                lake.feed(log, rows)
            lake.refresh()
            if wrong := found(lake):
                return f"epoch {epoch}: {wrong}"
            seen += sum(len(lake.rows(name)) for name in views)
        return "" if seen else "the history never makes a row"
    finally:
        lake.close()


def _history(pick: random.Random) -> Iterator[dict[str, list[dict[str, Any]]]]:
    offsets = dict.fromkeys(("s", "c", "t__log", "u__log"), 0)
    clocks = dict.fromkeys(offsets, _BEGIN)
    for _ in range(_EPOCHS):
        batch: dict[str, list[dict[str, Any]]] = {}
        for log in offsets:
            batch[log] = []
            for _ in range(pick.randint(0, _MOST_EVENTS)):
                at = _BEGIN + timedelta(seconds=7 * offsets[log] + pick.randint(-20, 20))
                clocks[log] = max(clocks[log], at)
                place = {"_partition": 0, "_offset": offsets[log], "_timestamp": at, "_stream_time": clocks[log]}
                batch[log].append({**_row(pick, log), **place})
                offsets[log] += 1
        yield {log: rows for log, rows in batch.items() if rows}


def _row(pick: random.Random, log: str) -> dict[str, Any]:
    k, n = pick.choice(["a", "b", "c", None]), pick.choice([1, 2, 3, 5, None])
    if log == "c":
        return {"k": k, "n": n}
    if log != "s":
        return {"id": pick.randint(1, 5), "k": k, "n": n, "_tombstone": pick.random() < 0.25}
    return {
        "k": k,
        "v": n,
        "x": pick.choice([0.5, 1.5, 2.0, None]),
        "d": pick.choice([Decimal("1.25"), Decimal("2.50"), None]),
        "tags": pick.choice([[1, 2], [3], None, []]),
        "b": pick.choice([True, False, None]),
        "ts": _BEGIN + timedelta(seconds=pick.randint(0, 100_000)),
        "day": date(2024, 1, pick.randint(1, 28)),
    }
