"""What `jobs.functions.failing` writes in the place of operators that can fail: their NULL, and an error.

They are not meant for users, who write `+` and `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.jobs.engines.engine import FAILS_ON_A_ROW
from strandline.jobs.functions.scalars.contract import Scalar, Types
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import SqlType


def _made(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an operator becomes; write the operator", hint="a / b, a + b")


FAIL = "FAIL"
"""The function that has no value for any argument: an error that names the expression that fails on a row."""


def _error(function: str, nothing: str) -> Callable[[Sequence[str]], str]:
    """The error with the text of the first argument; of the others it only reads the values."""

    def text(arguments: Sequence[str]) -> str:
        message, *read = arguments
        parts = [f"'{FAILS_ON_A_ROW}'", message, *(nothing.format(each) for each in read)]
        return f"{function}(concat({', '.join(parts)}))"

    return text


def _tried(sign: str) -> Callable[[Sequence[str]], str]:
    """DuckDB's TRY, which takes no query inside; so operands that are queries are computed before it."""

    def text(arguments: Sequence[str]) -> str:
        left, right = arguments
        if "SELECT" in left or "SELECT" in right:
            tried = f"TRY((__t).a {sign} (__t).b)"
            return f"list_transform([struct_pack(a := {left}, b := {right})], lambda __t: {tried})[1]"
        return f"TRY(({left}) {sign} ({right}))"

    return text


FAILING = (
    Scalar(
        FAIL,
        _made,
        _error("raise_error", "coalesce(left(CAST({} AS STRING), 0), '')"),
        _error("error", "left(CAST({} AS VARCHAR), 0)"),
        hidden=True,
    ),
    # A row that fails, for the dead letters.
    Scalar(
        "ROW_JSON",
        _made,
        "to_json({0}, map('ignoreNullFields', 'false'))",
        "CAST(to_json({0}) AS VARCHAR)",
        hidden=True,
    ),
    Scalar("TRY_ADD", _made, "try_add({0}, {1})", _tried("+"), hidden=True),
    Scalar("TRY_SUBTRACT", _made, "try_subtract({0}, {1})", _tried("-"), hidden=True),
    Scalar("TRY_MULTIPLY", _made, "try_multiply({0}, {1})", _tried("*"), hidden=True),
)
