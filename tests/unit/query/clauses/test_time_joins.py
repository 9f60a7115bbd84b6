"""FOR SYSTEM_TIME AS OF: which row an event finds, what happens to it later, and where the clause cannot stand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, UnknownName
from strandline.jobs.session.define.view import check_rules
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.duck_lake import DuckLake
from tests.support.query_text import block, joins

SOURCES = """
CREATE STREAM orders (id INT KEY, currency VARCHAR, amount INT, at BIGINT) WITH (TIMESTAMP = 'at');
CREATE STREAM payments (id INT KEY, amount INT);
CREATE TABLE rates (currency VARCHAR PRIMARY KEY, rate INT, since TIMESTAMP);
CREATE TABLE totals AS SELECT currency, COUNT(*) AS n FROM orders GROUP BY currency;
"""
JOINED = "SELECT o.id, r.rate FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF {} AS r ON o.currency = r.currency"
EVENT = ["inner orders o", "left rates__log r ON o.currency = r.currency frozen as_of"]
ARRIVAL = ["inner orders o", "left rates r ON o.currency = r.currency frozen"]


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


@pytest.mark.parametrize("kind", ["MATERIALIZED VIEW", "STREAM"])
@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        ("o.ROWTIME", EVENT),
        ("ROWTIME", EVENT),
        ("o._timestamp", EVENT),
        ("o.at", EVENT),
        ("PROCTIME()", ARRIVAL),
    ],
)
def test_each_time_names_the_row_that_is_joined(catalog: Catalog, kind: str, time: str, wanted: list[str]) -> None:
    text = JOINED.format(time).replace("SELECT o.id", "SELECT o.currency, o.id")
    assert joins(block(f"CREATE {kind} v AS {text}", catalog)) == wanted


def test_the_clause_comes_back_from_the_catalog(catalog: Catalog) -> None:
    run(f"CREATE MATERIALIZED VIEW v AS {JOINED.format('o.ROWTIME')};", catalog)
    view = catalog.get("v")
    assert isinstance(view, View)
    assert view.inputs == ("orders", "rates")
    assert joins(block(f"CREATE MATERIALIZED VIEW w AS {view.query}", catalog)) == EVENT
    check_rules(plan(view, catalog))


def test_a_view_of_several_queries_looks_up_in_each(catalog: Catalog) -> None:
    text = JOINED.format("PROCTIME()")
    run(f"CREATE MATERIALIZED VIEW v AS {text} UNION ALL {text};", catalog)
    view = catalog.get("v")
    assert isinstance(view, View)
    assert view.storage == "append"


# --- rows -----------------------------------------------------------------------------------------------------------


def _at(second: int, offset: int, **columns: Any) -> dict[str, Any]:
    time = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)
    return {"_partition": 0, "_offset": offset, "_timestamp": time, "_stream_time": time, **columns}


@pytest.mark.parametrize(
    ("time", "first", "second"),
    [
        ("o.ROWTIME", {1: 10, 2: None}, {1: 10, 2: None, 3: 10, 4: 20, 5: None}),
        ("PROCTIME()", {1: 10, 2: 10}, {1: 10, 2: 10, 3: None, 4: None, 5: None}),
    ],
)
def test_a_row_stays_as_the_event_found_it(
    catalog: Catalog, time: str, first: dict[int, int], second: dict[int, int]
) -> None:
    run(f"CREATE MATERIALIZED VIEW v AS {JOINED.format(time)};", catalog)
    lake = DuckLake(catalog, [catalog.get(name) for name in ("orders", "rates", "v")])
    lake.feed("rates__log", [_at(10, 0, currency="a", rate=10)])
    lake.feed("orders", [_at(15, 0, id=1, currency="a"), _at(5, 1, id=2, currency="a")])
    lake.refresh()
    assert {row["id"]: row["rate"] for row in lake.rows("v")} == first
    lake.feed("rates__log", [_at(20, 1, currency="a", rate=20), _at(30, 2, currency="a", _tombstone=True)])
    lake.feed("orders", [_at(at, n, id=n, currency="a") for n, at in ((3, 19), (4, 20), (5, 30))])
    lake.refresh()
    assert {row["id"]: row["rate"] for row in lake.rows("v")} == second
    # Recomputation has the table's events, but not which of its rows were there in which epoch.
    assert time == "PROCTIME()" or lake.wrong("v") == ""


# --- refused --------------------------------------------------------------------------------------------------------

LOOKUP = "JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() r ON o.currency = r.currency"


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (JOINED.format("r.since"), UnknownName, "unknown stream, table or alias 'r'"),
        (JOINED.format("o.amount"), InvalidQuery, "as of the events of 'orders'"),
        (JOINED.format("o.ROWTIME + 1000"), InvalidQuery, "as of the events of 'orders'"),
        (JOINED.format("'2024-01-01'"), InvalidQuery, "as of the events of 'orders'"),
        (JOINED.format("NOW()"), InvalidQuery, "NOW gives another value each time"),
        (JOINED.replace("SYSTEM_TIME", "VERSION").format("3"), InvalidQuery, "not FOR VERSION AS OF 3"),
        (JOINED.format("o.ROWTIME").replace("rates", "totals"), NotSupported, "'totals' is a view"),
        (JOINED.format("o.ROWTIME").replace("rates", "payments"), InvalidQuery, "is for tables"),
        (JOINED.format("o.ROWTIME").replace("LEFT", "FULL"), InvalidQuery, "not FULL JOIN"),
        ("SELECT o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF ROWTIME r ON o.id = r.rate", InvalidQuery, "key"),
        ("SELECT o.id FROM orders o, rates FOR SYSTEM_TIME AS OF o.ROWTIME r", InvalidQuery, "needs a JOIN with ON"),
        ("SELECT id FROM orders FOR SYSTEM_TIME AS OF PROCTIME()", InvalidQuery, "that a stream joins"),
        (f"SELECT r.rate FROM totals o {LOOKUP}", InvalidQuery, "'totals', is no stream"),
        (f"SELECT r.rate, COUNT(*) AS n FROM orders o {LOOKUP} GROUP BY r.rate", NotSupported, "that groups"),
        (f"SELECT DISTINCT r.rate FROM orders o {LOOKUP}", NotSupported, "that groups"),
        (
            f"SELECT COUNT(*) OVER (PARTITION BY o.id) AS n FROM orders o {LOOKUP}",
            NotSupported,
            "OVER",
        ),
        (f"SELECT q.id FROM (SELECT o.id FROM orders o {LOOKUP}) AS q", NotSupported, "in a query inside another"),
        (f"SELECT id FROM payments WHERE id IN (SELECT o.id FROM orders o {LOOKUP})", NotSupported, "inside another"),
        (f"SELECT o.id FROM orders o {LOOKUP} UNION SELECT id FROM payments", NotSupported, "inside another"),
        (f"SELECT o.id FROM orders o {LOOKUP} JOIN totals t ON t.currency = o.currency", NotSupported, "beside 't'"),
        (f"SELECT o.id FROM orders o {LOOKUP} WHERE o.id IN (SELECT id FROM payments)", NotSupported, "beside"),
        (f"SELECT o.id FROM orders o LEFT JOIN payments p ON p.id = o.id {LOOKUP}", NotSupported, "beside 'p'"),
    ],
)
def test_what_is_refused(catalog: Catalog, query: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        run(f"CREATE MATERIALIZED VIEW v AS {query};", catalog)


def test_streams_that_only_come_may_stand_beside_it(catalog: Catalog) -> None:
    found = block(f"SELECT o.id FROM orders o JOIN payments p ON p.id = o.id {LOOKUP}", catalog)
    assert joins(found)[1:] == ["inner payments p ON p.id = o.id", "inner rates r ON o.currency = r.currency frozen"]
