"""Expectations with quarantine at CREATE: what they are part of, and where they are refused."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import NotSupported, OptionRefused, SqlError, TypeMismatch
from tests.support.catalog_from_sql import run
from tests.unit.session.define.defined import view

AGE = "expect_column_values_to_be_between: {column: age, min_value: 0}"


def adults(entry: str, options: str = "", quarantine: str = "true") -> str:
    expect = f"EXPECT = '[{{{entry}, quarantine: {quarantine}}}]'"
    return f"CREATE TABLE v WITH ({expect}{options}) AS SELECT id, name, age FROM users;"


def test_the_rows_depend_on_it(catalog: Catalog) -> None:
    with_it = view(adults(AGE), catalog)
    catalog.remove("v")
    without = view(adults(AGE, quarantine="false"), catalog)
    assert with_it.fingerprint != without.fingerprint
    assert (with_it.query, with_it.columns, with_it.row_key) == (without.query, without.columns, without.row_key)


def test_said_twice_it_is_the_same_view(catalog: Catalog) -> None:
    first = view(adults(AGE), catalog)
    assert run(adults(AGE), catalog) is first


@pytest.mark.parametrize(
    ("entry", "error", "said"),
    [
        ("expect_column_values_to_be_unique: {column: id}", NotSupported, "about single rows"),
        ("expect_table_row_count_to_be_between: {min_value: 1}", NotSupported, "about single rows"),
        ("expect_column_mean_to_be_between: {column: age, min_value: 1}", NotSupported, "about single rows"),
        (AGE.replace("}", ", mostly: 0.9}"), NotSupported, "'mostly'"),
        (AGE.replace("}", ", row_condition: x}"), NotSupported, "'row_condition'"),
        ("expect_column_values_to_be_between: {column: age}", OptionRefused, "neither min_value nor max_value"),
        ("expect_column_values_to_be_between: {column: age, min_value: .inf}", OptionRefused, "no row can be compared"),
        ("expect_column_values_to_be_in_set: {column: age}", OptionRefused, "needs the argument 'value_set'"),
        ("expect_column_values_to_be_in_set: {column: age, value_set: []}", OptionRefused, "a list of values"),
        ("expect_column_values_to_be_between: {column: age, min_value: x}", TypeMismatch, "INT"),
        ("expect_column_value_lengths_to_equal: {column: age, value: 1}", TypeMismatch, "VARCHAR"),
    ],
)
def test_what_no_single_row_breaks_is_refused(entry: str, error: type[SqlError], said: str, catalog: Catalog) -> None:
    with pytest.raises(error, match=said):
        run(adults(entry), catalog)
    assert catalog.find("v") is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (", ERRORS = 'null'", "ERRORS = 'null' has none"),
        (", ERRORS = 'stop'", "ERRORS = 'stop' has none"),
        (", SEMANTICS = 'ksql'", "ERRORS = 'null' has none"),
        (", STATE = 'partial'", "a partial view has none"),
    ],
)
def test_a_view_without_dead_letters_keeps_no_row_aside(options: str, said: str, catalog: Catalog) -> None:
    with pytest.raises(NotSupported, match=said):
        run(adults(AGE, options), catalog)


def test_with_dead_letters_the_semantics_of_ksqldb_have_it_too(catalog: Catalog) -> None:
    made = view(adults(AGE, ", SEMANTICS = 'ksql', ERRORS = 'dead_letter'"), catalog)
    assert isinstance(made, View)


def test_a_source_has_what_its_topic_has(catalog: Catalog) -> None:
    with pytest.raises(NotSupported, match="quarantine is for views"):
        run(f"CREATE TABLE w (id INT PRIMARY KEY, age INT) WITH (EXPECT = '[{{{AGE}, quarantine: true}}]');", catalog)


def test_what_is_inserted_by_queries_would_pass_by_it(catalog: Catalog) -> None:
    expect = "EXPECT = '[{expect_column_values_to_not_be_null: {column: area}, quarantine: true}]'"
    run(f"CREATE STREAM kept WITH ({expect}) AS SELECT sensor, area FROM readings;", catalog)
    insert = "INSERT INTO {} SELECT sensor, area FROM readings WHERE n > 1;"
    with pytest.raises(NotSupported, match="keeps rows of its query out of it"):
        run(insert.format("kept"), catalog)
    plain = "CREATE {}STREAM fed {}AS SELECT sensor, area FROM readings;"
    run(plain.format("", "") + insert.format("fed"), catalog)
    with pytest.raises(NotSupported, match="that other queries feed: 'fed__insert_1'"):
        run(plain.format("OR REPLACE ", f"WITH ({expect}) "), catalog)
