"""KAFKA: one column as Kafka's own serializers write it."""

from __future__ import annotations

import struct

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType
from tests.unit.ingest.formats.decoding import decode, source


@pytest.mark.parametrize(
    ("kind", "good", "value", "bad"),
    [
        (t.INT, struct.pack(">i", -7), -7, b"\0" * 8),
        (t.BIGINT, struct.pack(">q", 2**40), 2**40, b"\0" * 4),
        (t.DOUBLE, struct.pack(">d", 0.1), 0.1, b"1"),
        (t.VARCHAR, "ü".encode(), "ü", b"\xff"),
        (t.BYTES, b"\xff", b"\xff", None),
    ],
)
def test_primitives_are_those_of_kafkas_serializers(kind: SqlType, good: bytes, value: object, bad: bytes) -> None:
    of = source("JSON", ("k", kind))
    assert decode(of, [good, good], "key") == ([{"k": value}] * 2, {})
    rows, errors = decode(of, [good, None, bad], "key")
    assert [row["k"] for row in rows] == [value, None, None]
    assert list(errors) == ([] if bad is None else [2])
