"""Functions that take a lambda (TRANSFORM, FILTER, REDUCE), as each engine writes them.

`jobs.query.expressions.nested` elaborates their calls.
"""

from __future__ import annotations

from strandline.jobs.functions.scalars.contract import Scalar, Types
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.types import SqlType

FORMS = {
    "TRANSFORM": "TRANSFORM(array, x => …) or TRANSFORM(map, (k, v) => …, (k, v) => …)",
    "FILTER": "FILTER(array, x => …) or FILTER(map, (k, v) => …)",
    "REDUCE": "REDUCE(array, state, (s, x) => …) or REDUCE(map, state, (s, k, v) => …)",
}
"""The forms of a call, for each function."""

OF_ARRAY = "of_array"
"""The mark, among a Bracket's `meta`, of an element of an ARRAY; without it one of a MAP."""


def _by_function(name: str, types: Types) -> tuple[Types, SqlType]:
    raise InvalidQuery(f"{name} takes a function", hint=FORMS[name])


HIGHER_ORDER = (
    Scalar("TRANSFORM", _by_function, "transform", "list_transform"),
    Scalar("FILTER", _by_function, "filter", "list_filter"),
    # NULL as the state gives NULL, and NULL as the array gives the state.
    Scalar(
        "REDUCE",
        _by_function,
        "CASE WHEN {1} IS NULL OR {0} IS NULL THEN {1} ELSE aggregate({0}, {1}, {2}) END",
        "CASE WHEN {1} IS NULL OR {0} IS NULL THEN {1} ELSE list_reduce({0}, {2}, {1}) END",
    ),
)
