"""Columns that a source was given later, in each format: records without them have NULL."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS, open_format
from strandline.jobs.model import types as t
from tests.unit.ingest.formats.decoding import decode, no_registry, source


@pytest.mark.parametrize(
    ("form", "optional"),
    [
        *((form, False) for form in ("JSON", "JSON_SR", "AVRO", "PROTOBUF", "DELIMITED")),
        *((form, True) for form in ("PROTOBUF", "PROTOBUF_NOSR")),
    ],
)
def test_records_of_both_forms_are_read(form: str, optional: bool) -> None:
    registry = SchemaRegistryClient.new_client({"url": f"mock://added-{form}-{optional}"})
    options = {NULLABLE_OPTIONS["value"]: "OPTIONAL"} if optional else {}
    narrow = source(form, ("a", t.INT), ("b", t.VARCHAR), **options)
    wide = replace(source(form, ("a", t.INT), ("b", t.VARCHAR), ("c", t.VARCHAR), ("d", t.BIGINT), **options), added=2)
    payloads: list[bytes | None] = []
    for of, row in ((narrow, {"a": 1, "b": "x"}), (wide, {"a": 2, "b": "y", "c": "z", "d": 3})):
        made = open_format(of, "value", lambda: registry)
        assert made is not None
        payloads.append(made.encode(row))
    old, new = {"a": 1, "b": "x", "c": None, "d": None}, {"a": 2, "b": "y", "c": "z", "d": 3}
    assert decode(wide, payloads, registry=lambda: registry) == ([old, new], {})


def test_a_line_may_end_before_added_columns_only() -> None:
    of = replace(source("DELIMITED", ("a", t.INT), ("b", t.INT), ("c", t.INT), ("d", t.INT)), added=2)
    rows, errors = decode(of, [b"1,2", b"1,2,3", b"1,2,3,4", b"1", b"1,2,3,4,5"])
    assert rows[:2] == [{"a": 1, "b": 2, "c": None, "d": None}, {"a": 1, "b": 2, "c": 3, "d": None}]
    assert errors == {3: "1 values for 4 columns", 4: "5 values for 4 columns"}


def test_protobuf_without_nulls_gives_the_default() -> None:
    """A plain field of proto3 that is absent is its default; with the schema in a registry it is known to be absent."""
    narrow = source("PROTOBUF_NOSR", ("a", t.INT))
    made = open_format(narrow, "value", no_registry)
    assert made is not None
    wide = replace(source("PROTOBUF_NOSR", ("a", t.INT), ("c", t.VARCHAR)), added=1)
    assert decode(wide, [made.encode({"a": 1})]) == ([{"a": 1, "c": ""}], {})
