"""NOW() in views: rows leave by the ticks of the lake's clock, and a recomputation agrees after every one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.memory_catalog import MemoryCatalog

CLOCK = "CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE');"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, a INT, at TIMESTAMP);"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
QUERIES = (
    "SELECT id FROM t WHERE at > NOW() - INTERVAL '1' DAY",
    "SELECT k, COUNT(*) AS n, MAX(a) AS m FROM t WHERE at > NOW() - INTERVAL '1' DAY GROUP BY k",
    "SELECT id FROM t WHERE NOW() BETWEEN at AND at + INTERVAL '30' HOUR",
    "SELECT id, DATE_DIFF('hour', at, NOW()) AS age FROM t WHERE CAST(at AS DATE) >= CURRENT_DATE - 1",
    "SELECT t.id, u.id AS i FROM t JOIN t AS u ON t.k = u.k WHERE t.at < CURRENT_TIMESTAMP AND u.at > NOW() - INTERVAL"
    " '2' DAY",
    "SELECT * FROM (SELECT k, MAX(at) AS at FROM t GROUP BY k) WHERE at > NOW() - INTERVAL '1 DAY'",
    "SELECT id FROM t WHERE at > MZ_NOW() - INTERVAL '1 06:00' DAY TO MINUTE AND CAST(at AS DATE) >= TODAY() - 1",
)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("query", QUERIES)
def test_rows_leave_by_the_ticks_of_the_clock(query: str, db: duckdb.DuckDBPyConnection) -> None:
    catalog = MemoryCatalog()
    run(f"{TABLE}{CLOCK} CREATE MATERIALIZED VIEW v AS {query};", catalog)
    lake, pick, place = DuckLake(catalog, catalog.definitions(), db), random.Random(1), 0
    meta = {"_partition": 0, "_stream_time": BEGIN, "_timestamp": BEGIN}
    sizes = []
    try:
        for epoch in range(6):
            for _ in range(pick.randint(0, 4)):
                at = pick.choice([None, BEGIN + timedelta(hours=pick.randint(0, 60))])
                row = {"id": pick.randint(1, 9), "k": pick.choice("ab"), "a": pick.randint(0, 5), "at": at}
                lake.feed("t__log", [{**row, **meta, "_offset": place, "_tombstone": pick.random() < 0.2}])
                place += 1
            if epoch:
                now = BEGIN + timedelta(hours=15 * epoch)
                lake.feed("clock__log", [{"id": 0, "now": now, **meta, "_offset": epoch}])
            lake.refresh()
            assert lake.wrong("v") == ""
            sizes.append(len(lake.rows("v")))
        lake.feed("clock__log", [{"id": 0, "now": BEGIN + timedelta(days=999), **meta, "_offset": 6}])
        lake.refresh()
        assert (max(sizes) > 0, lake.wrong("v"), lake.rows("v")) == (True, "", [])
    finally:
        lake.close()


def test_the_clock_is_among_the_inputs_of_the_view() -> None:
    catalog = MemoryCatalog()
    run(f"{TABLE}{CLOCK} CREATE MATERIALIZED VIEW v AS {QUERIES[0]};", catalog)
    view = catalog.get("v")
    assert isinstance(view, View)
    assert view.inputs == ("t", "clock")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE MATERIALIZED VIEW v AS SELECT NOW() AS n FROM t;", InvalidQuery, "WITH .TICK_EVERY = '1 MINUTE'"),
        (f"{CLOCK} CREATE STREAM s (a INT); CREATE STREAM v AS SELECT NOW() AS n FROM s;", NotSupported, "leave by"),
        (
            f"{CLOCK} CREATE MATERIALIZED VIEW v AS SELECT CURRENT_TIME AS n FROM t;",
            NotSupported,
            "CURRENT_TIME in a view",
        ),
        (f"{CLOCK} {CLOCK.replace('clock', 'watch')}", InvalidQuery, "'clock' is the clock"),
        (
            "CREATE TABLE c (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MONTH');",
            OptionRefused,
            "length of time",
        ),
        (
            "CREATE TABLE c (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '10');",
            OptionRefused,
            "length of time",
        ),
        ("CREATE TABLE c (id INT PRIMARY KEY, a INT) WITH (TICK_EVERY = '1 DAY');", OptionRefused, "a TIMESTAMP"),
        (
            "CREATE SOURCE TABLE c (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 DAY');",
            InvalidQuery,
            "SOURCE",
        ),
    ],
)
def test_what_is_no_clock(text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        run(f"{TABLE} {text}", MemoryCatalog())
