"""Elements and fields of nested values."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import UnknownName
from tests.support.function_cases import elaborated


@pytest.mark.parametrize("text", ["who->age", "who->AGE", "who->`age`", "who->`Age`"])
def test_case_decides_nothing_in_the_name_of_a_field(text: str) -> None:
    assert elaborated(text).expression.sql() == "who.age"


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName):
        elaborated("who->agee")


def test_a_row_has_no_names_and_is_converted_by_place() -> None:
    converted = elaborated("CAST(ROW(42, 'x') AS STRUCT<a BIGINT, b VARCHAR>)").expression.sql()
    assert "f1" in converted
    assert "f2" in converted


def test_fields_with_names_are_converted_by_name() -> None:
    assert "NULL" in elaborated("CAST(STRUCT(b := 1) AS STRUCT<a INT, b INT>)").expression.sql()
