"""WITH (…) of a view: a format that must hold its columns, a time from a column."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.model.stage import MapStage
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.unit.session.define.defined import view


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("KEY_FORMAT='KAFKA'", "KAFKA holds one key column"),
        ("KEY_FORMAT='NONE'", "KEY_FORMAT is NONE"),
        ("VALUE_FORMAT='DELIMITED'", "DELIMITED cannot hold"),
    ],
)
def test_a_format_that_is_named_must_hold_the_columns(catalog: Catalog, options: str, message: str) -> None:
    query = "SELECT area, n, COLLECT_LIST(reading) AS l FROM readings GROUP BY area, n"
    assert view(f"CREATE TABLE ok AS {query}", catalog).key == ("area", "n")
    with pytest.raises(InvalidQuery, match=message):
        run(f"CREATE TABLE v WITH ({options}) AS {query}", catalog)


def test_a_view_may_take_its_time_from_a_column(catalog: Catalog) -> None:
    def time_of(name: str, options: str) -> str:
        found = view(
            f"CREATE STREAM {name} WITH ({options}) AS SELECT sensor, n, CAST(n AS BIGINT) AS b, at FROM readings",
            catalog,
        )
        (stage,) = plan(found, catalog).stages
        assert isinstance(stage, MapStage)
        (time,) = [column.expression for column in stage.body[0].columns if column.name == "_timestamp"]
        return sql_of(time)

    assert time_of("a", "TIMESTAMP='b'") == "FROM_UNIXTIME(CAST(readings.n AS BIGINT))"
    assert time_of("b", "TIMESTAMP='AT'") == "readings.at"
    with pytest.raises(OptionRefused, match="'n' is INT"):
        time_of("c", "TIMESTAMP='n'")
    with pytest.raises(UnknownName, match="unknown column 'x'"):
        time_of("d", "TIMESTAMP='x'")


@pytest.mark.parametrize("errors", ["null", "stop"])
def test_what_a_view_says_of_rows_that_fail_holds_in_the_stages_that_it_shares(catalog: Catalog, errors: str) -> None:
    sums = "SELECT area, n, SUM({}) AS x FROM readings GROUP BY area, n"
    inner = f"SELECT area, COUNT(*) AS c FROM ({sums}) AS a GROUP BY area"
    options = f"STATE = 'shared', ERRORS = '{errors}'"
    with pytest.raises(NotSupported, match=f"ERRORS = '{errors}', and a row can fail in a stage that it shares"):
        run(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {inner.format('10 / n')}", catalog)
    assert run(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {inner.format('n')}", catalog)
    assert run(f"CREATE MATERIALIZED VIEW w WITH (ERRORS = '{errors}') AS {inner.format('10 / n')}", catalog)
    assert run(f"CREATE MATERIALIZED VIEW x WITH (STATE = 'shared') AS {inner.format('10 / n')}", catalog)


@pytest.mark.parametrize(
    ("option", "length"),
    [("TTL = '1 WEEK'", "1 WEEK"), ("MAX_AGE = 1000", "1 DAY")],
)
def test_a_view_that_should_forget_is_told_what_to_write(catalog: Catalog, option: str, length: str) -> None:
    query = "SELECT area, MAX(at) AS at FROM readings GROUP BY area"
    with pytest.raises(OptionRefused) as found:
        run(f"CREATE MATERIALIZED VIEW v WITH ({option}) AS {query}", catalog)
    assert f"WITH (RETENTION = '{length}', TIMESTAMP = " in str(found.value.hint)


CLOCK = "CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE')"
LATEST = "SELECT area, MAX(at) AS at FROM readings GROUP BY area"


@pytest.mark.parametrize(
    ("options", "query", "same"),
    [
        ("RETENTION = '2 hours', TIMESTAMP = 'at'", LATEST, "at > NOW() - INTERVAL '2 hours'"),
        ("RETENTION_MS = 500, TIMESTAMP = 'at'", LATEST, "at > NOW() - INTERVAL '500' MILLISECOND"),
        (
            "RETENTION = '1 week', TIMESTAMP = 'n', TIMESTAMP_FORMAT = 'yyyy'",
            "SELECT area, 'x' AS n FROM readings GROUP BY area",
            "PARSE_TIMESTAMP(n, 'yyyy') > NOW() - INTERVAL '1 week'",
        ),
        (
            "RETENTION = '1 MONTH'",
            "SELECT area, windowstart, windowend, COUNT(*) AS c FROM readings"
            " WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY area",
            "FROM_UNIXTIME(windowend) > NOW() - INTERVAL '1 MONTH'",
        ),
        (
            "RETENTION = '1 DAY'",
            "WITH r AS (SELECT area, n FROM readings) SELECT area, windowstart, windowend, SUM(n) AS c FROM r"
            " WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES) GROUP BY area EMIT FINAL",
            "FROM_UNIXTIME(windowend) > NOW() - INTERVAL '1 DAY'",
        ),
    ],
)
def test_the_retention_of_a_view_is_a_condition_on_its_time(
    catalog: Catalog, options: str, query: str, same: str
) -> None:
    run(CLOCK, catalog)
    kept = view(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {query}", catalog)
    told = options.partition(",")[2]
    with_options = f"WITH ({told}) " if told else ""
    inner = f"CREATE MATERIALIZED VIEW w AS {query}"
    names = [column.name for column in view(inner, catalog).columns]
    written = f"CREATE MATERIALIZED VIEW x {with_options}AS SELECT {', '.join(names)} FROM ({query}) WHERE {same}"
    assert kept.fingerprint == view(written, catalog).fingerprint
    assert [column.name for column in kept.columns] == names


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("MATERIALIZED VIEW", "RETENTION = '1 DAY'", "RETENTION needs the column that says how old"),
        ("TABLE", "RETENTION_MS = 5, TIMESTAMP = 'at'", "RETENTION_MS in CREATE STREAM or TABLE"),
        ("MATERIALIZED VIEW", "RETENTION = 'soon', TIMESTAMP = 'at'", "'soon' is no length of time"),
        ("MATERIALIZED VIEW", "RETENTION = '-1 day', TIMESTAMP = 'at'", "'-1 day' is no length"),
        ("MATERIALIZED VIEW", "RETENTION_MS = 0, TIMESTAMP = 'at'", "RETENTION_MS is a whole number"),
        ("MATERIALIZED VIEW", "RETENTION = '1 DAY', RETENTION_MS = 1, TIMESTAMP = 'at'", "say the same"),
        ("MATERIALIZED VIEW", "RETENTION = '1 DAY', TIMESTAMP = 'gone'", "unknown column 'gone'"),
    ],
)
def test_a_retention_that_says_nothing_is_refused(catalog: Catalog, kind: str, options: str, message: str) -> None:
    run(CLOCK, catalog)
    with pytest.raises(SqlError, match=message):
        run(f"CREATE {kind} v WITH ({options}) AS {LATEST}", catalog)


def test_a_retention_without_end_changes_nothing(catalog: Catalog) -> None:
    kept = view(f"CREATE MATERIALIZED VIEW v WITH (RETENTION_MS = -1) AS {LATEST}", catalog)
    assert kept.fingerprint == view(f"CREATE MATERIALIZED VIEW w AS {LATEST}", catalog).fingerprint


def test_a_retention_needs_a_clock(catalog: Catalog) -> None:
    with pytest.raises(SqlError, match="NOW") as found:
        run(f"CREATE MATERIALIZED VIEW v WITH (RETENTION = '1 DAY', TIMESTAMP = 'at') AS {LATEST}", catalog)
    assert "TICK_EVERY" in str(found.value.hint)
