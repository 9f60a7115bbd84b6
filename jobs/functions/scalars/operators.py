"""Operators that can fail, in the two forms that `jobs.functions.failing` writes: with an error, and with NULL.

They are not meant for users, who write `+` and `/`.
"""

from __future__ import annotations

from jobs.functions.scalars.contract import Scalar, Types
from jobs.model.errors import TypeMismatch
from jobs.model.types import SqlType


def _made(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an operator becomes; write the operator", hint="a / b, a + b")


FAILING = (
    Scalar("EXACT_DIVIDE", _made, "(({0}) / ({1}))", hidden=True),
    Scalar("EXACT_MOD", _made, "(({0}) % ({1}))", hidden=True),
    Scalar("EXACT_DIV", _made, "(({0}) div ({1}))", "(({0}) // ({1}))", hidden=True),
    # A row that fails, for the dead letters.
    Scalar(
        "ROW_JSON",
        _made,
        "to_json({0}, map('ignoreNullFields', 'false'))",
        "CAST(to_json({0}) AS VARCHAR)",
        hidden=True,
    ),
    Scalar("TRY_ADD", _made, "try_add({0}, {1})", "TRY(({0}) + ({1}))", hidden=True),
    Scalar("TRY_SUBTRACT", _made, "try_subtract({0}, {1})", "TRY(({0}) - ({1}))", hidden=True),
    Scalar("TRY_MULTIPLY", _made, "try_multiply({0}, {1})", "TRY(({0}) * ({1}))", hidden=True),
)
