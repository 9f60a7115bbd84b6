"""Functions written in Python, inside DuckDB: which are loaded, and what they are given and give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from strandline.jobs.functions.python import Library, registered
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Function
from strandline.jobs.model.errors import FunctionRefused, RefreshFailed
from tests.support.python_function_stage import MODULE, function


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def answer(db: duckdb.DuckDBPyConnection, made: Function, sql: str) -> list[Any]:
    Library([made], [MODULE]).register_duckdb(db, sql)
    return [value for (value,) in db.execute(sql).fetchall()]


def test_a_module_taken_off_the_list_stops_what_calls_it_and_nothing_else(db: duckdb.DuckDBPyConnection) -> None:
    made = function("F", [t.INT], t.INT, "fails")
    library = Library([made], allowed=())
    library.register_duckdb(db, "SELECT 1")
    with pytest.raises(FunctionRefused):
        library.register_duckdb(db, f"SELECT {registered(made)}(1)")


def test_a_source_that_changed_since_create_stops_what_calls_it(db: duckdb.DuckDBPyConnection) -> None:
    made = function("F", [t.INT], t.INT, "fails")
    older = replace(made, source="older")
    with pytest.raises(RefreshFailed, match="has changed since CREATE FUNCTION F"):
        answer(db, older, f"SELECT {registered(older)}(1)")


def test_a_scalar_gets_plain_values_and_sees_nulls(db: duckdb.DuckDBPyConnection) -> None:
    made = function("INITIALS", [t.VARCHAR], t.VARCHAR, "initials")
    assert answer(db, made, f"SELECT {registered(made)}(n) FROM (VALUES ('Ada Lovelace'), (NULL)) v(n)") == ["AL", "?"]


def test_maps_and_decimals_go_through(db: duckdb.DuckDBPyConnection) -> None:
    kind = t.map_of(t.VARCHAR, t.array(t.decimal(6, 2)))
    made = function("TURNED", [kind], kind, "turned")
    given = f"CAST(MAP {{'a': [1.25, 2.5], 'b': NULL}} AS {kind.duckdb()})"
    with pytest.raises(duckdb.Error, match=r"pipeline\.function_failed.*TURNED"):
        answer(db, made, f"SELECT {registered(made)}({given})")
    [found] = answer(db, made, f"SELECT {registered(made)}(map_from_entries([map_entries({given})[1]]))")
    assert found == {"a": [Decimal("2.50"), Decimal("1.25")]}


@pytest.mark.parametrize(("attribute", "value"), [("fails", 0), ("lies", 7)])
def test_a_function_that_raises_or_lies_about_its_type_is_named(
    db: duckdb.DuckDBPyConnection, attribute: str, value: int
) -> None:
    made = function("F", [t.INT], t.INT, attribute)
    with pytest.raises(duckdb.Error, match=r"\[pipeline\.function_failed\] the function F failed"):
        answer(db, made, f"SELECT {registered(made)}({value}::INTEGER)")
