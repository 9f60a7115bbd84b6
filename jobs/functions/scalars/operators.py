"""Operators that can fail, in the two forms that `jobs.functions.failing` writes: with an error, and with NULL.

They are not meant for users, who write `+` and `/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.engines.engine import DIVISION_BY_ZERO
from jobs.functions.scalars.contract import Scalar, Types
from jobs.model.errors import TypeMismatch
from jobs.model.types import SqlType


def _made(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an operator becomes; write the operator", hint="a / b, a + b")


# Written twice, a long operand would be written four times in the next division around it.
_SHORT = 100


def _divided(arguments: Sequence[str]) -> str:
    """DuckDB's division fails on no number: x / 0 is infinite there."""
    dividend, divisor = arguments
    if len(dividend) + len(divisor) > _SHORT:
        pair = f"struct_pack(a := {dividend}, b := {divisor})"
        return f"list_transform([{pair}], lambda __q: {_divided(('(__q).a', '(__q).b'))})[1]"
    failing = f"({divisor}) = 0 AND ({dividend}) IS NOT NULL"
    return f"CASE WHEN {failing} THEN error('{DIVISION_BY_ZERO}') ELSE ({dividend}) / ({divisor}) END"


FAILING = (
    Scalar("EXACT_DIVIDE", _made, "(({0}) / ({1}))", _divided, hidden=True),
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
