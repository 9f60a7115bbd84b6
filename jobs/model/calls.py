"""Calls of functions that look at many rows: aggregate functions over a group, and functions OVER a window.

Their expressions read the columns of a stage's body; see `jobs.model.stage`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.model.types import SqlType


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function applied to expressions over the body's columns.

    Attributes:
        name: what the outputs call it: `__a0`, `__a1`, …
        function: upper-case name in `jobs.functions.aggregates.registry.FUNCTIONS`.
        arguments: the value expressions; constant parameters (N, ignoreNulls) are in `parameters`.
        argument_types: a type for each argument.
        type: the type of the result.
        distinct: COUNT(DISTINCT x) and the like.
        filter: FILTER (WHERE …).
    """

    name: str
    function: str
    arguments: tuple[exp.Expression, ...]
    argument_types: tuple[SqlType, ...]
    type: SqlType
    parameters: tuple[int | bool | str, ...] = ()
    distinct: bool = False
    filter: exp.Expression | None = None


@dataclass(frozen=True)
class AnalyticCall:
    """One function OVER (PARTITION BY … ORDER BY … frame), over the body's columns.

    Attributes:
        name: what the outputs call it: `__w0`, …
        function: ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTILE, or COUNT, SUM, AVG, MIN, MAX.
        order: (expression, descending, nulls first); ties are broken by the row's key, so that the result is a
            function of the rows.
        frame: text of the frame (`ROWS BETWEEN 9 PRECEDING AND CURRENT ROW`); None is SQL's default.
        null_beyond: a sum is NULL while it is out of its type's range.
    """

    name: str
    function: str
    arguments: tuple[exp.Expression, ...]
    order: tuple[tuple[exp.Expression, bool, bool], ...]
    type: SqlType
    frame: str | None = None
    null_beyond: bool = False
