"""Pull queries over the tables of a lake against plain tables that are kept by hand.

A condition on a key becomes one on the statistics of files and on rows in Parquet: at the edges of types, where engines
round and order differently, no row may be lost to that.
"""

from __future__ import annotations

from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.properties.on_delta import PIPELINE, feed, refreshed
from tests.support.catalog_from_sql import run
from tests.support.examples import seed_of
from tests.support.plain_tables import SOURCES, PlainTables, told_apart

_CONDITIONS = {
    "id": (
        "= 3",
        "= 2.5",
        "= 3e0",
        "IN (1, 3, NULL)",
        "IN (1.0, 2.5)",
        "> 2.5",
        "< 2147483648",
        "IS NOT DISTINCT FROM 3",
    ),
    "k": ("= 'a'", "= ''", "IS NULL", "NOT IN ('a')", "BETWEEN 'A' AND 'a'", "LIKE 'a%'"),
    "x": (
        "= 0",
        "> 1",
        "< 0",
        ">= 9007199254740992",
        "= 9007199254740993",
        "= CAST('NaN' AS DOUBLE)",
        "> 1e308",
        "IS NULL",
    ),
    "d": ("= 1.250", "= 1.255", "IN (1.25, 2)", "<= 1.2499", "= 1.25e0"),
    "dt": ("= '1969-12-31'", "< TIMESTAMP '1969-12-31T12:00:00'", "> DATE '1970-01-01'", "IS NULL"),
    "ts": (
        "= TIMESTAMP '1969-12-31T23:59:59.999'",
        "> TIMESTAMP '1900-03-01T12:00:00'",
        "< TIMESTAMP '1900-03-01T12:00:00.000001'",
        "<= TIMESTAMP '1900-03-01T12:00:00.000001'",
    ),
    "w": ("= 9007199254740993", "> 9007199254740992.5", "= 9223372036854775807", "= 9223372036854775808", "< 1e10"),
}
_ORDERED = (
    "SELECT id, v FROM t ORDER BY v, id",
    "SELECT id, v FROM t ORDER BY v NULLS LAST, id DESC LIMIT 3 OFFSET 2",
    "SELECT id FROM t ORDER BY x DESC, id LIMIT 4",
    "SELECT x FROM by_x ORDER BY x",
    "SELECT w FROM by_w WHERE w > 1 ORDER BY w DESC LIMIT 2",
    "SELECT k FROM t UNION SELECT k FROM u ORDER BY k LIMIT 2 OFFSET 1",
)


def test_pull_queries_answer_as_plain_tables_do(tmp_path: Path) -> None:
    lake, seed = LakeLayout(tmp_path / "lake"), seed_of(0)
    catalog = Catalog(lake)
    run(SOURCES, catalog, PIPELINE)
    views = {f"by_{key}": f"SELECT {key}, COUNT(*) AS c FROM t GROUP BY {key}" for key in _CONDITIONS}
    for name, text in views.items():
        run(f"CREATE MATERIALIZED VIEW {name} AS {text};", catalog, PIPELINE)
    plain = PlainTables(seed)
    with DuckDBEngine("1GB", 1) as duckdb_engine:
        for epoch, events in enumerate(plain.epochs(2, 12)):
            feed(lake, events, epoch)
            assert not refreshed(RunContext(None, lake, f"{PIPELINE}/1", duckdb_engine=duckdb_engine))
    session = Interpreter(load_settings(lake=lake.root))

    def answer(sql: str) -> list[tuple[object, ...]]:
        (result,) = session.run(sql)
        assert isinstance(result, Rows)
        return [tuple(row) for row in result.rows]

    for key, conditions in _CONDITIONS.items():
        for condition in conditions:
            found = answer(f"SELECT * FROM by_{key} WHERE {key} {condition}")
            asked = f"SELECT * FROM ({views[f'by_{key}']}) WHERE {key} {condition}"
            assert told_apart(found) == plain.rows(asked), f"STRANDLINE_SEED={seed}: {asked}"
    for sql in _ORDERED:
        asked = sql.replace("by_x", f"({views['by_x']})").replace("by_w", f"({views['by_w']})")
        assert [told_apart([row]) for row in answer(sql)] == plain.in_order(asked), f"STRANDLINE_SEED={seed}: {sql}"
    plain.close()
