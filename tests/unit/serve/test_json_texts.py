"""Rows of Arrow tables as JSON: the text that rows have that are written one by one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from strandline.jobs.model import types as t
from strandline.jobs.serve.results import array_texts, json_line, object_texts, python_rows, to_json

COLUMNS = {
    "a": (t.BIGINT, st.integers(-(2**63), 2**63 - 1)),
    'quote"d': (t.VARCHAR, st.text()),
    "plain": (t.VARCHAR, st.text("abcü京", max_size=3)),
    "b": (t.BOOLEAN, st.booleans()),
    "d": (t.DOUBLE, st.floats()),
    "e": (t.decimal(9, 2), st.decimals(-99999, 99999, places=2)),
    "at": (t.TIMESTAMP, st.datetimes(timezones=st.just(dt.UTC))),
    "by": (t.BYTES, st.binary(max_size=5)),
    "m": (t.map_of(t.VARCHAR, t.INT), st.dictionaries(st.text("ab"), st.integers(0, 9), max_size=2)),
    "s": (t.struct(("x", t.TIME)), st.fixed_dictionaries({"x": st.integers(0, 86_399_999)})),
}
NAMES = tuple(COLUMNS)
TYPES = tuple(sql_type for sql_type, _ in COLUMNS.values())
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in COLUMNS.values())), max_size=4)


@given(ROWS, ROWS)
def test_a_table_has_the_text_of_its_rows(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> None:
    """Property: for all values, in however many batches; also where a whole column is NULL."""
    schema = pa.schema([(str(place), each.arrow()) for place, each in enumerate(TYPES)])
    batches = [pa.RecordBatch.from_pydict(_columns(rows), schema) for rows in (first, second)]
    table = pa.Table.from_batches(batches, schema)
    rows = python_rows(table, TYPES)
    assert [each.decode() for each in object_texts(table, TYPES, NAMES)] == [json_line(NAMES, row) for row in rows]
    assert [each.decode() for each in array_texts(table, TYPES)] == [to_json(list(row)) for row in rows]


def _columns(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {str(place): [row[place] for row in rows] for place in range(len(TYPES))}


def test_the_text_of_a_row() -> None:
    table = pa.table({"0": [1], "1": ['say "hi"'], "2": pa.array([Decimal("1.50")], pa.decimal128(5, 2))})
    types = (t.BIGINT, t.VARCHAR, t.decimal(5, 2))
    assert list(object_texts(table, types, ("n", "t", "d"))) == [rb'{"n": 1, "t": "say \"hi\"", "d": 1.50}']
