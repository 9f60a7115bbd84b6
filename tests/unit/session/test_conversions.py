"""Values given to a column: refused where something would be lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import SqlType
from strandline.jobs.session.conversions import assign


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", t.INT),
        (1, t.VARCHAR),
        (True, t.INT),
        (1, t.BOOLEAN),
        (2**31, t.INT),
        (1.5, t.BIGINT),
        (1.5, t.decimal(3, 1)),
        ("nonsense", t.DATE),
        ("25:00", t.TIME),
        ([1], t.map_of(t.VARCHAR, t.INT)),
        (["x"], t.array(t.INT)),
        ({"z": 1}, t.struct(("x", t.INT))),
        (Decimal("NaN"), t.decimal(3, 1)),
        ("text", t.BYTES),
    ],
)
def test_a_value_that_would_lose_something_is_refused_by_the_name_of_its_column(value: Any, kind: SqlType) -> None:
    with pytest.raises(TypeMismatch, match="column 'c'"):
        assign(value, kind, "column 'c'")
