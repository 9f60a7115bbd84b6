"""EXPLAIN says how a view is maintained, in words that a reader can check against the plan."""

from __future__ import annotations

import subprocess
import sys

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.explain import explain
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.sql.statements import Explain, parse_one
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(
        lake,
        """CREATE STREAM s (k VARCHAR KEY, v INT);
        CREATE TABLE t (k VARCHAR PRIMARY KEY, v INT);
        CREATE TABLE counts AS SELECT k, COUNT(*) AS c, MAX(v) AS m FROM s WHERE v > 0 GROUP BY k HAVING COUNT(*) > 1;
        CREATE MATERIALIZED VIEW vs AS SELECT v FROM t;
        CREATE MATERIALIZED VIEW whole WITH (REFRESH='full') AS SELECT v, MAX(k) AS m, SUM(v) AS n FROM t GROUP BY v;
        CREATE STREAM looked AS SELECT s.k, t.v FROM s JOIN t ON s.k = t.k;
        """,
    )


def explained(text: str, catalog: Catalog) -> str:
    statement = parse_one(text)
    assert isinstance(statement, Explain)
    return explain(statement, catalog)


def test_maintenance_says_what_is_looked_up_and_what_is_scanned(catalog: Catalog) -> None:
    text = explained("EXPLAIN MAINTENANCE whole", catalog)
    assert "  looks up self_old by (v)\n  looks up new_t by (v)" in text
    joined = explained("EXPLAIN MAINTENANCE SELECT t.k, s.v FROM t FULL JOIN s ON t.k = s.k", catalog)
    assert "  looks up old_t by (k)\n  looks up old_s by (k)" in joined
    assert "scans" not in joined
    for query, why in (
        ("SELECT t.k, s.v FROM t FULL JOIN s ON t.k < s.k", "no equality of columns finds them"),
        (
            "SELECT t.k, s.v FROM t FULL JOIN s ON t.k = s.k FULL JOIN t AS u ON u.v = s.v",
            "a RIGHT or FULL join keeps rows that meet nothing",
        ),
    ):
        assert f"  scans    old_t: {why}" in explained(f"EXPLAIN MAINTENANCE {query}", catalog)


def test_stages_calls_and_state_are_named(catalog: Catalog) -> None:
    text = explained("EXPLAIN counts", catalog)
    for part in (
        "table counts",
        "stage 1 of 2: changes are folded per group",
        "reads    s (append-only)",
        "where    s.v > 0",
        "columns  s.k AS __g0, s.v AS __x0",
        "__a0 = COUNT(*) BIGINT, merged",
        "__a1 = MAX(__x0) INT, merged",
        "keeps    __state STRUCT<`__rows` BIGINT",
        "stage 2 of 2: changed rows are filtered",
        "where    groups.__a0 > 1",
        "writes   counts (k, c, m), by key",
        "note: HAVING",
    ):
        assert part in text


def test_a_hidden_key_is_shown(catalog: Catalog) -> None:
    text = explained("EXPLAIN vs", catalog)
    assert "key      __k0 (hidden)" in text
    assert "t.k AS __k0" in text


def test_calls_that_cannot_take_a_row_back_are_told_from_those_that_can(catalog: Catalog) -> None:
    text = explained("EXPLAIN whole", catalog)
    assert "MAX(__x0) VARCHAR, a group that loses the row which decided it is computed again" in text
    assert "SUM(__g0) BIGINT, merged" in text


def test_joins_are_listed_with_their_conditions_and_kinds(catalog: Catalog) -> None:
    text = explained(
        "EXPLAIN SELECT s.v, t.v AS w FROM s LEFT JOIN t ON s.k = t.k WHERE s.k IN (SELECT k FROM t)", catalog
    )
    assert "changes of each input are joined with the others' rows" in text
    assert "LEFT JOIN t (rows change and go) ON s.k = t.k" in text
    assert "SEMI JOIN t AS" in text


def test_a_lookup_as_of_an_event_s_time_is_told_from_a_join(catalog: Catalog) -> None:
    assert "JOIN t__log AS t (as it was at the event's time)" in explained("EXPLAIN looked", catalog)


def test_branches_windows_and_repeated_rows_are_shown(catalog: Catalog) -> None:
    union = explained("EXPLAIN SELECT k FROM s UNION ALL SELECT k FROM t", catalog)
    assert "branch 1" in union
    assert "branch 2" in union
    hopping = explained(
        "EXPLAIN SELECT k, COUNT(*) AS c FROM s WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY k",
        catalog,
    )
    assert "repeats  each row for each ARRAY[" in hopping
    session = explained("EXPLAIN SELECT k, COUNT(*) AS c FROM s WINDOW SESSION (10 SECONDS) GROUP BY k", catalog)
    assert "no further apart than 10000 ms" in session


def test_the_choice_of_refresh_is_said(catalog: Catalog) -> None:
    assert "refresh  auto: the changes, which are all that it reads" in explained("EXPLAIN counts", catalog)
    assert "refresh  full: all rows" in explained("EXPLAIN whole", catalog)
    assert "refresh  its changes" in explained("EXPLAIN t", catalog)
    assert "engine   DuckDB" in explained("EXPLAIN t", catalog)
    joined = explained("EXPLAIN SELECT s.v, t.v AS w FROM s JOIN t ON s.k = t.k", catalog)
    assert "refresh  auto: the changes; all rows, as a difference, when more than" in joined


def test_what_is_not_incremental_says_why(catalog: Catalog) -> None:
    text = explained("EXPLAIN SELECT k, ROW_NUMBER() OVER (ORDER BY v) AS n FROM t", catalog)
    assert "not incremental: OVER without PARTITION BY" in text
    assert "not incremental" not in explained(
        "EXPLAIN SELECT k, ROW_NUMBER() OVER (PARTITION BY v ORDER BY k) AS n FROM t", catalog
    )


def test_sources_are_explained_too(catalog: Catalog) -> None:
    assert "the newest event of each key" in explained("EXPLAIN t", catalog)
    assert "written by ingest from the topic 's'" in explained("EXPLAIN s", catalog)


def test_a_select_is_explained_as_if_it_were_a_view(catalog: Catalog) -> None:
    assert "and appended" in explained("EXPLAIN SELECT k FROM s", catalog)
    assert "and appended" in explained("EXPLAIN SELECT k FROM s ORDER BY k", catalog), "a view's rows have no order"


def test_maintenance_prints_the_sql_that_spark_runs(catalog: Catalog) -> None:
    text = explained("EXPLAIN MAINTENANCE vs", catalog)
    assert "FROM `delta_t`" in text
    assert "self_old" in text
    assert "delta_t" not in explained("EXPLAIN vs", catalog)


def test_maintenance_prints_how_late_rows_are_counted(catalog: Catalog) -> None:
    counted = "late rows are counted by"
    assert counted not in explained("EXPLAIN MAINTENANCE vs", catalog)
    window = "SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 HOURS, GRACE PERIOD 1 MINUTES) GROUP BY k"
    _, _, late = explained(f"EXPLAIN MAINTENANCE {window}", catalog).partition(counted)
    assert "SUM(__weight)" in late
    assert "FROM `delta_s`" in late


def test_an_unknown_view_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match="'count'"):
        explained("EXPLAIN count", catalog)


def test_nothing_of_it_loads_spark(lake: LakeLayout) -> None:
    """The prompt answers EXPLAIN and DESCRIBE within a second: no JVM, no pyspark, no pandas."""
    code = (
        "import sys, strandline.jobs.ivm.explain;"
        "import strandline.jobs.ivm.refresh.epoch;"
        "import strandline.jobs.ivm.rules.maintenance, strandline.jobs.session.define.analyze;"
        "print({'pyspark', 'pandas', 'pyarrow'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
