"""Look-ups of a partial view: which rows of the keys that were read one gets."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.partial.view import keys_of, rows_of
from strandline.jobs.serve.lookup import Lookup
from tests.support.served_lake import ServedLake
from tests.unit.partial.shop import opened

DEFINITIONS = """
    CREATE STREAM readings (id BIGINT KEY, place VARCHAR, x DOUBLE) WITH (KAFKA_TOPIC = 'readings');
    CREATE MATERIALIZED VIEW by_value WITH (STATE = 'partial') AS
        SELECT place, x, COUNT(*) AS n FROM readings GROUP BY place, x;
"""
NAN = float("nan")


@pytest.mark.parametrize(
    ("asked", "found"),
    [(("a",), [1, 1, 2, 2]), (("a", 1.0), [1]), (("a", None), [1]), (("a", NAN), [2]), (("a", -0.0), [2])],
)
def test_a_value_of_the_key_that_selects_no_rows_chooses_among_them(
    settings: Settings, asked: tuple[Any, ...], found: list[int]
) -> None:
    """As GROUP BY compares: NaN is one value, and so are 0.0 and -0.0."""
    served = ServedLake(settings, DEFINITIONS)
    values = (1.0, None, NAN, NAN, 0.0, -0.0)
    served.append("readings", [{"id": number, "place": "a", "x": value} for number, value in enumerate(values)])
    view = opened(served, "by_value")
    lookup = Lookup((asked,))
    rows = rows_of(lookup, view.plan, view.read(keys_of(lookup, view.plan)))
    assert sorted(row["n"] for row in rows) == found
