"""INTERVAL: a length of time as a node of the tree, and its text.

    INTERVAL '1' DAY, INTERVAL 90 MINUTES, INTERVAL '1 day 2 hours', INTERVAL '-3 months'

A length is months and milliseconds apart: a month has no length of its own. It is no value of a column: it is added to
and subtracted from dates and times, and gives their functions a length.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp, generator

from strandline.jobs.sql.time_clauses import UNITS

_DAYS = {name: length for unit, length in UNITS.items() if unit != "YEAR" for name in (unit, f"{unit}S")}
_MONTHS = {"MONTH": 1, "MONTHS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12, "YEARS": 12}
INTERVAL_UNITS = (*_DAYS, *_MONTHS)
"""The units of an INTERVAL."""
_PART = re.compile(r"\s*([+-]?[0-9]+)\s*([A-Za-z]+)")


class IntervalNode(exp.Expression):
    """INTERVAL …: both parts are number literals, perhaps negative ones as text."""

    arg_types: ClassVar[dict[str, bool]] = {"months": True, "milliseconds": True}

    @property
    def parts(self) -> tuple[int, int]:
        """Months and milliseconds."""
        return int(self.args["months"].name), int(self.args["milliseconds"].name)


def interval_of(text: str, unit: str | None = None) -> IntervalNode | None:
    """The interval of a text: a number for `unit`, or numbers each with its unit; None when it is neither."""
    if unit is not None:
        text = f"{text} {unit}"
    months = milliseconds = place = 0
    while place < len(text.rstrip()):
        match = _PART.match(text, place)
        if match is None or match.group(2).upper() not in INTERVAL_UNITS:
            return None
        number, word = int(match.group(1)), match.group(2).upper()
        months += number * _MONTHS.get(word, 0)
        milliseconds += number * _DAYS.get(word, 0)
        place = match.end()
    return _node(months, milliseconds) if place else None


def _node(months: int, milliseconds: int) -> IntervalNode:
    return IntervalNode(
        months=exp.Literal(this=str(months), is_string=True),
        milliseconds=exp.Literal(this=str(milliseconds), is_string=True),
    )


def _interval_sql(self: generator.Generator, node: IntervalNode) -> str:
    months, milliseconds = node.parts
    return f"INTERVAL '{months} MONTHS {milliseconds} MILLISECONDS'"


TRANSFORMS: dict[Any, Any] = {IntervalNode: _interval_sql}
"""The function by which our generator writes the node."""
