"""CREATE … AS SELECT that cannot be: every refusal says what is wrong and where."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NameTaken, NotSupported, SqlError, TypeMismatch, UnknownName
from tests.support.catalog_from_sql import run
from tests.unit.session.define.defined import view


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE STREAM shared__v AS SELECT * FROM readings", InvalidQuery, "makes itself"),
        ("CREATE STREAM v AS SELECT * FROM reedings", UnknownName, "unknown stream, table or view 'reedings'"),
        ("CREATE STREAM v AS SELECT sensr FROM readings", UnknownName, "unknown column 'sensr'"),
        ("CREATE STREAM v AS SELECT x.sensor FROM readings r", UnknownName, "unknown stream, table or alias 'x'"),
        ("CREATE STREAM v AS SELECT x.* FROM readings r", UnknownName, "'x'"),
        ("CREATE STREAM v AS SELECT readings.n FROM readings r", UnknownName, "'readings'"),
        ("CREATE STREAM v AS SELECT n, area AS n FROM readings", InvalidQuery, "two columns are named 'n'"),
        ("CREATE STREAM v AS SELECT *, n FROM readings", InvalidQuery, "two columns are named 'n'"),
        ("CREATE STREAM v AS SELECT n, area AS `N` FROM readings", InvalidQuery, "'n' and 'N' differ only in case"),
        ("CREATE STREAM v AS SELECT STRUCT(a := n, `A` := n) AS s FROM readings", InvalidQuery, "'a' and 'A' differ"),
        (
            "CREATE STREAM v AS SELECT r.n FROM readings r, readings `R`",
            InvalidQuery,
            "'r' and 'R' differ only in case",
        ),
        (
            "CREATE STREAM v AS WITH q AS (SELECT n FROM readings), `Q` AS (SELECT n FROM readings) SELECT n FROM q",
            InvalidQuery,
            "'q' and 'Q' differ only in case",
        ),
        (
            "CREATE STREAM `Readings` AS SELECT n FROM readings",
            NameTaken,
            "'readings' and 'Readings' differ only in case",
        ),
        (
            "CREATE STREAM v AS SELECT sensor FROM readings WHERE n IS UNKNOWN",
            TypeMismatch,
            "IS UNKNOWN takes a BOOLEAN",
        ),
        ("CREATE STREAM v AS SELECT sensor FROM readings WHERE n IS JSON", NotSupported, "IS json"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT NTH_VALUE(n, 2) OVER (PARTITION BY area ORDER BY n"
            " RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM readings",
            NotSupported,
            "no definite value",
        ),
        ("CREATE STREAM v AS SELECT rowtime FROM readings", InvalidQuery, "reserved"),
        ("CREATE STREAM v AS SELECT NULL AS x FROM readings", InvalidQuery, "no type"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE n", TypeMismatch, "WHERE takes a condition"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE area > 1", TypeMismatch, "cannot compare VARCHAR with INT"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE COUNT(*) > 1", InvalidQuery, "COUNT cannot stand here"),
        ("CREATE STREAM v AS SELECT 1 AS x", InvalidQuery, "reads nothing"),
        ("CREATE STREAM v AS SELECT area FROM readings GROUP BY area", InvalidQuery, "'v' is a table"),
        ("CREATE STREAM v AS SELECT * FROM users", InvalidQuery, "'users' is a table"),
        ("CREATE TABLE v AS SELECT area FROM readings", InvalidQuery, "'v' is a stream"),
        ("CREATE TABLE v AS SELECT COUNT(*) AS c FROM readings", InvalidQuery, "needs GROUP BY"),
        ("CREATE TABLE v AS SELECT n FROM readings GROUP BY area", InvalidQuery, "'n' is neither grouped"),
        ("CREATE TABLE v AS SELECT area, n + COUNT(*) FROM readings GROUP BY area", InvalidQuery, "'n' is neither"),
        ("CREATE TABLE v AS SELECT * FROM readings GROUP BY area", InvalidQuery, "neither grouped"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area HAVING n > 1", InvalidQuery, "'n' is neither"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area HAVING COUNT(*)", TypeMismatch, "HAVING takes"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY 1", InvalidQuery, "constant"),
        (
            "CREATE TABLE v AS SELECT area FROM readings GROUP BY area, COUNT(*)",
            InvalidQuery,
            "COUNT cannot stand here",
        ),
        (
            "CREATE TABLE v AS SELECT area, SUM(COUNT(*)) FROM readings GROUP BY area",
            InvalidQuery,
            "COUNT cannot stand",
        ),
        ("CREATE TABLE v AS SELECT UCASE(area) AS a FROM readings GROUP BY a", UnknownName, "unknown column 'a'"),
        ("CREATE TABLE v AS SELECT sensor, SUM(area) FROM readings GROUP BY sensor", TypeMismatch, "SUM"),
        ("CREATE STREAM v AS SELECT DISTINCT n FROM readings", InvalidQuery, "'v' is a table"),
        ("CREATE STREAM v AS SELECT n FROM readings ORDER BY n", NotSupported, "ORDER BY"),
        ("CREATE STREAM v AS SELECT n FROM readings LIMIT 3", NotSupported, "LIMIT"),
        ("CREATE STREAM v AS SELECT n FROM readings UNION SELECT n FROM readings", InvalidQuery, "'v' is a table"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area EMIT FINAL", InvalidQuery, "EMIT FINAL"),
        ("CREATE STREAM v AS SELECT n FROM readings PARTITION BY area", InvalidQuery, "must select .*: area"),
        ("CREATE STREAM v AS SELECT n FROM readings", InvalidQuery, "must select the key of its input: sensor"),
        ("CREATE TABLE v AS SELECT COUNT(*) AS c FROM readings GROUP BY area", InvalidQuery, "must select .*: area"),
        ("CREATE TABLE v AS SELECT id FROM users PARTITION BY age", InvalidQuery, "for streams"),
        (
            "CREATE STREAM v AS SELECT sensor, n, sensor AS again FROM readings",
            InvalidQuery,
            "more than once: 'sensor'",
        ),
        ("CREATE TABLE v AS SELECT id AS a, id AS b, age FROM users", InvalidQuery, "more than once: 'a' and 'b'"),
        (
            "CREATE TABLE v AS SELECT area, n, n AS m, COUNT(*) AS c FROM readings GROUP BY area, n",
            InvalidQuery,
            "more than once: 'n' and 'm'",
        ),
        ("CREATE STREAM v AS SELECT sensor FROM readings", InvalidQuery, "nothing but the key: sensor"),
        ("CREATE STREAM v AS SELECT area FROM readings PARTITION BY area", InvalidQuery, "nothing but the key"),
        ("CREATE TABLE v AS SELECT area, UCASE(area) AS a FROM readings GROUP BY area", InvalidQuery, "without an agg"),
        ("CREATE STREAM v AS SELECT sensor, n <> NULL AS x FROM readings", TypeMismatch, "compared with NULL"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM readings HAVING COUNT(*) > 1", InvalidQuery, "neither grouped"),
    ],
)
def test_views_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run(text, catalog)
    assert type(caught.value) is error
    assert caught.value.line is not None
    assert catalog.find("v") is None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM v AS SELECT sensor, AS_VALUE(sensor) AS again FROM readings",
        "CREATE STREAM v AS SELECT n, n AS m FROM readings PARTITION BY NULL",
        "CREATE TABLE v AS SELECT area, AS_VALUE(area) AS place FROM readings GROUP BY area HAVING MAX(n) > 2",
        "CREATE MATERIALIZED VIEW v AS SELECT sensor, sensor AS again FROM readings",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM users",
        "CREATE MATERIALIZED VIEW v AS SELECT area FROM readings GROUP BY area",
    ],
)
def test_a_key_may_be_copied_and_a_materialized_view_may_be_all_key(catalog: Catalog, text: str) -> None:
    assert view(text, catalog).name == "v"


def test_a_fault_in_a_view_is_pointed_at_in_the_whole_text(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE STREAM v AS\n  SELECT n,\n         sensr\n  FROM readings;", catalog)
    assert (caught.value.line, caught.value.column) == (3, 10)
    assert "'sensor'" in str(caught.value.hint)


def test_grouping_by_an_alias_proposes_the_expression(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE TABLE v AS SELECT UCASE(area) AS a FROM readings GROUP BY a", catalog)
    assert "GROUP BY UCASE(area)" in str(caught.value.hint)
