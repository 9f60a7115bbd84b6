"""WITH (…) of a view: a format that must hold its columns, a time from a column."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, UnknownName
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
    [("RETENTION = '2 hours'", "2 hours"), ("TTL = '1 WEEK'", "1 WEEK"), ("RETENTION_MS = 1000", "1 DAY")],
)
def test_a_view_that_should_forget_is_told_what_to_write(catalog: Catalog, option: str, length: str) -> None:
    query = "SELECT area, MAX(at) AS at FROM readings GROUP BY area"
    with pytest.raises(OptionRefused) as found:
        run(f"CREATE MATERIALIZED VIEW v WITH ({option}) AS {query}", catalog)
    said = f"SELECT * FROM (SELECT …) WHERE at > NOW() - INTERVAL '{length}'"
    assert str(found.value.hint).endswith(said)
    run("CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE')", catalog)
    view(f"CREATE MATERIALIZED VIEW v AS {said.replace('SELECT …', query)}", catalog)
