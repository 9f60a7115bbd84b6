"""Names that differ only in case: Spark, Delta and DuckDB take them for one.

A quoted name keeps its case, so that `"Id"` and `id` are two columns to the parser. A table with both cannot be read:
Delta refuses it when it is written, or the wrong column is read.
"""

from __future__ import annotations

from collections.abc import Iterable


def alike(name: str, others: Iterable[str]) -> str | None:
    """The first of the others that is that name, but for case; None when there is none."""
    return next((other for other in others if other.lower() == name.lower()), None)


def differ_only_in_case(what: str, one: str, other: str) -> str:
    """The message for two such names of `what` ("columns")."""
    return f"the {what} '{one}' and '{other}' differ only in case: Spark and Delta take them for one"
