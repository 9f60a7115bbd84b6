"""DELIMITED: lines of separated values, and what separates them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import OptionRefused
from tests.unit.ingest.formats.decoding import decode, no_registry, source


def test_delimited_text() -> None:
    of = source("DELIMITED", ("a", t.INT), ("b", t.VARCHAR), ("c", t.decimal(4, 1)))
    lines: list[bytes | None] = [b'1,"x,""y""",2.5', b"2,,", b"1,2", b"1,2,3,4", b'1,"x', b"\xff,,", b"x,,", None, b""]
    rows, errors = decode(of, lines)
    assert rows[0] == {"a": 1, "b": 'x,"y"', "c": Decimal("2.5")}
    assert rows[1] == {"a": 2, "b": None, "c": None}
    assert set(errors) == {2, 3, 4, 5, 6, 8}
    assert errors[2] == "2 values for 3 columns"


@pytest.mark.parametrize(("option", "line"), [("|", b"1|2"), ("TAB", b"1\t2"), ("space", b"1 2")])
def test_delimiters(option: str, line: bytes) -> None:
    of = source("DELIMITED", ("a", t.INT), ("b", t.INT), VALUE_DELIMITER=option)
    assert decode(of, [line]) == ([{"a": 1, "b": 2}], {})


def test_a_delimiter_of_two_characters_is_refused() -> None:
    with pytest.raises(OptionRefused, match="one character"):
        open_format(source("DELIMITED", ("a", t.INT), VALUE_DELIMITER="::"), "value", no_registry)
