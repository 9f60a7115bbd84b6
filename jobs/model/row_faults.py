"""What an expression fails by on a row, in SQL's own classes: a division by zero, a number out of range.

The text of DuckDB's error carries it from the query to whoever reads the error: `division_by_zero: a / b`.
"""

from __future__ import annotations

from enum import StrEnum


class RowFault(StrEnum):
    """The classes, those first that are asked first of a row that fails in several ways."""

    BAD_TEXT = "bad_text"
    BAD_TIME = "bad_time"
    DIVISION_BY_ZERO = "division_by_zero"
    NO_PATTERN = "no_pattern"
    SEVERAL_ROWS = "several_rows"
    NO_FRAME = "no_frame"
    TOO_LARGE = "too_large"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    BAD_ARGUMENT = "bad_argument"
    # Last: what was computed of an operand that has no value is NULL as well.
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN = "unknown"


def with_fault(fault: str, words: str) -> str:
    """The words with their fault in front, as an error's text carries them."""
    return f"{fault}: {words}"


def fault_and_words(text: str) -> tuple[RowFault, str]:
    """The fault and the words of an error's text; UNKNOWN where it has none."""
    name, colon, words = text.partition(":")
    if colon and name in set(RowFault):
        return RowFault(name), words.strip()
    return RowFault.UNKNOWN, text
