"""The scalar functions of the language, by name, and `lower`: an expression in the words of Spark or DuckDB.

Both texts give the same rows. Known differences, all in the tail of the numbers: DOUBLE as text (`1.0E10` is Spark's),
and DECIMAL divided by DECIMAL, which DuckDB divides as DOUBLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlglot import exp

from jobs.sql.scalars import Scalar
from jobs.sql.scalars_numbers import NUMBERS
from jobs.sql.scalars_other import CONVERSIONS, OTHER
from jobs.sql.scalars_text import TEXT

SCALARS: Mapping[str, Scalar] = {
    name: scalar for scalar in (*TEXT, *NUMBERS, *OTHER) for name in (scalar.name, *scalar.aliases)
}
"""The functions of the language, by each of their names."""

_CONVERSIONS: Mapping[str, Scalar] = {scalar.name: scalar for scalar in CONVERSIONS}

NOT_DETERMINISTIC = frozenset(
    {
        *("RAND", "RANDOM", "UUID", "NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "UNIX_DATE"),
        *("LOCALTIMESTAMP", "GETDATE"),
    }
)
"""Functions whose value depends on when, or how often, they are computed: no view can use them."""


def find(name: str) -> Scalar | None:
    """The function of that upper-case name, or None; what CAST is made of is among them."""
    return SCALARS.get(name) or _CONVERSIONS.get(name)


def lower(expression: exp.Expression, dialect: Literal["spark", "duckdb"]) -> str:
    """An expression, or a whole SELECT, as text for an engine.

    Expressions of a stage or of a view's stored query mean the same to both engines. In a query straight from the
    parser, types are not known yet: there `/` is the engine's own. Functions that are not ours are written as they are.
    """
    from jobs.sql.writers import WRITERS

    return WRITERS[dialect].text(expression)
