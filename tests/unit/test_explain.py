"""EXPLAIN says how a view is maintained, in words that a reader can check against the plan."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs.errors import NotSupported, UnknownName
from jobs.sql.catalog import Catalog
from jobs.sql.explain import explain
from jobs.sql.statements import Explain, parse_one
from state_store.layout import Lake
from tests.statements import catalog_of


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(
        lake,
        """CREATE STREAM s (k VARCHAR KEY, v INT);
        CREATE TABLE t (k VARCHAR PRIMARY KEY, v INT);
        CREATE TABLE counts AS SELECT k, COUNT(*) AS c, MAX(v) AS m FROM s WHERE v > 0 GROUP BY k HAVING COUNT(*) > 1;
        CREATE MATERIALIZED VIEW vs AS SELECT v FROM t;
        """,
    )


def explained(text: str, catalog: Catalog) -> str:
    statement = parse_one(text)
    assert isinstance(statement, Explain)
    return explain(statement, catalog)


def test_stages_calls_and_state_are_named(catalog: Catalog) -> None:
    text = explained("EXPLAIN counts", catalog)
    for part in (
        "table counts",
        "stage 1 of 2: changes are folded per group",
        "reads   s (append-only)",
        "where   v > 0",
        "__a0 = COUNT(*) BIGINT, takes values back",
        "__a1 = MAX(v) INT, for append-only inputs",
        "keeps   __state STRUCT<`__rows` BIGINT",
        "stage 2 of 2: changed rows are filtered",
        "where   __having",
        "note: HAVING",
    ):
        assert part in text


def test_a_hidden_key_is_shown(catalog: Catalog) -> None:
    assert "k AS __k0 (hidden)" in explained("EXPLAIN vs", catalog)


def test_sources_are_explained_too(catalog: Catalog) -> None:
    assert "the newest event of each key" in explained("EXPLAIN t", catalog)
    assert "written by ingest from the topic 's'" in explained("EXPLAIN s", catalog)


def test_a_select_is_explained_as_if_it_were_a_view(catalog: Catalog) -> None:
    assert "and appended" in explained("EXPLAIN SELECT k FROM s", catalog)
    with pytest.raises(NotSupported, match="ORDER BY"):
        explained("EXPLAIN SELECT k FROM s ORDER BY k", catalog)


def test_maintenance_prints_the_sql_that_spark_runs(catalog: Catalog) -> None:
    text = explained("EXPLAIN MAINTENANCE vs", catalog)
    assert "FROM delta" in text
    assert "self_old" in text
    assert "FROM delta" not in explained("EXPLAIN vs", catalog)


def test_an_unknown_view_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match="'count'"):
        explained("EXPLAIN count", catalog)


def test_nothing_of_it_loads_spark() -> None:
    """The prompt answers EXPLAIN and DESCRIBE within a second: no JVM, no pyspark, no pandas."""
    code = (
        "import sys, jobs.sql.explain, jobs.sql.analyze; print({'pyspark', 'pandas', 'pyarrow'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
