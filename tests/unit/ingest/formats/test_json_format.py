"""JSON: names of members, records that are broken, and what their reasons say."""

from __future__ import annotations

import pytest

from strandline.jobs.model import types as t
from tests.unit.ingest.formats.decoding import decode, source


def test_json_names_match_without_regard_to_case_exact_first() -> None:
    of = source("JSON", ("id", t.INT), ("Id", t.INT), ("gone", t.INT))
    rows, errors = decode(of, [b'{"ID": 1, "Id": 2}', b'{"id": 3}', b'{"GONE": null}', b'{"iD": 4, "gOnE": 5}'])
    assert errors == {}
    assert rows == [
        {"id": 1, "Id": 2, "gone": None},
        {"id": 3, "Id": 3, "gone": None},
        {"id": None, "Id": None, "gone": None},
        {"id": 4, "Id": 4, "gone": 5},
    ]


@pytest.mark.parametrize(
    "text", [b"", b"[1]", b'"x"', b"1", b"null", b"{", b"{}{}", b'{"v": 1,}', b"\xff", b"{'v': 1}"]
)
def test_a_value_that_is_no_json_object_is_broken(text: bytes) -> None:
    rows, errors = decode(source("JSON", ("v", t.INT)), [b'{"v": 7}', text, b'{"v": 8}'])
    assert list(errors) == [1]
    assert [row["v"] for row in rows] == [7, None, 8]


def test_a_reason_speaks_only_of_its_own_record() -> None:
    payloads: list[bytes | None] = [b'{"v": "secret-%d"}' % n for n in range(3)]
    _, errors = decode(source("JSON", ("v", t.INT)), payloads)
    for row, reason in errors.items():
        assert [n for n in range(3) if f"secret-{n}" in reason] == [row]


def test_reasons_show_little_of_a_value() -> None:
    _, errors = decode(source("JSON", ("v", t.INT)), [b'{"v": "' + b"x" * 10_000 + b'"}'])
    assert len(errors[0]) < 100


def test_a_key_of_one_column_is_bare_of_several_an_object() -> None:
    single = source("JSON", ("k", t.BIGINT), ("v", t.INT), key_format="JSON")
    rows, errors = decode(single, [b"5", b'"6"', b'{"k": 7}', None, b"null"], "key")
    assert [row["k"] for row in rows] == [5, 6, None, None, None]
    assert list(errors) == [2]
    double = source("JSON", ("k1", t.BIGINT), ("k2", t.VARCHAR), key_format="JSON")
    assert decode(double, [b'{"k1": 1, "K2": "x"}'], "key") == ([{"k1": 1, "k2": "x"}], {})
