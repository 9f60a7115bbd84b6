"""Columns of headers: all of a record, or the last of a name; and what is no such column."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.stored_definition import from_json, to_json
from strandline.jobs.ingest.decode import all_headers, one_header
from strandline.jobs.ingest.logs.log import Records
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.tables import HEADERS
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

RECORDS = Records(0, [0, 1, 2], [0, 0, 0], [None] * 3, [b"{}"] * 3, [[("a", b"1"), ("a", b"2"), ("b", None)], [], None])


def test_the_headers_of_a_record_are_an_array() -> None:
    every = [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}, {"key": "b", "value": None}]
    assert all_headers(RECORDS, HEADERS.arrow()).to_pylist() == [every, [], []]


def test_one_header_is_the_last_value_of_its_name() -> None:
    assert one_header(RECORDS, "a").to_pylist() == [b"2", None, None]
    assert one_header(RECORDS, "c").to_pylist() == [None, None, None]


def test_a_source_remembers_which_columns_are_headers() -> None:
    text = "CREATE STREAM s (k INT KEY, h ARRAY<STRUCT<key VARCHAR, value BYTES>> HEADERS, v INT);"
    made = run(text, MemoryCatalog())
    assert isinstance(made, Source)
    assert [column.part for column in made.columns] == ["key", "headers", "value"]
    assert from_json(to_json(1, made).encode(), where="").definition == made


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("h BYTES HEADERS", "ARRAY<STRUCT"),
        ("h VARCHAR HEADER('a')", "is BYTES, not VARCHAR"),
        ("h BYTES HEADER('a'), i BYTES HEADER('a')", "the same header"),
        ("h ARRAY<STRUCT<key VARCHAR, value BYTES>> HEADERS, i BYTES HEADER('a')", "not both"),
    ],
)
def test_columns_that_cannot_be_headers(columns: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        run(f"CREATE STREAM s (v INT, {columns});", MemoryCatalog())
