"""Elements and fields of nested values."""

from __future__ import annotations

import pytest

from jobs.model.errors import UnknownName
from tests.support.function_cases import elaborated


@pytest.mark.parametrize("text", ["who->age", "who->AGE", "who->`age`", "who->`Age`"])
def test_case_decides_nothing_in_the_name_of_a_field(text: str) -> None:
    assert elaborated(text).expression.sql() == "who.age"


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName):
        elaborated("who->agee")
