"""The meaning of a fault inside a rule's query: an engine's text about rows or files becomes an error of ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import FAILS_ON_A_ROW, NEGATIVE_WEIGHT
from strandline.jobs.ivm.refresh.file_faults import file_fault
from strandline.jobs.model.errors import FunctionFailed, RowFailed, revive
from strandline.state_store.errors import NegativeWeight, StrandlineError
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.epoch import Epoch

# Spark's conditions for an expression that has no value for a row, and DuckDB's, with their first line.
_FAILS_ON_A_ROW = re.compile(
    r"\[(?:ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|CAST_INVALID_INPUT"
    r"|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION)[A-Z_.]*\][^\n]*"
    r"|(?:Out of Range Error|Conversion Error|Invalid Input Error: Division by zero)[^\n]*"
    # A pattern, a regular expression (in RE2's words) or a time zone that comes from a row.
    r"|\[(?:INVALID_PARAMETER_VALUE|INVALID_TIMEZONE|INCONSISTENT_BEHAVIOR_CROSS_VERSION)[A-Z_.]*\][^\n]*"
    r"|Invalid Input Error: (?:missing|unexpected|no argument|bad|invalid|trailing|DuckDB does not know)[^\n]*"
    r"|Unknown TimeZone[^\n]*"
    # A few functions on times let Java's own error through.
    r"|ArithmeticException: (?:long|integer) overflow"
    rf"|{FAILS_ON_A_ROW}[^\n]*"
)


def typed_fault(epoch: Epoch, text: str) -> StrandlineError | None:
    """The error that a fault's text stands for; None when it says nothing about rows or files."""
    where = sentence("{}, {}", Name(epoch.stage.table), epoch.record.reason)
    if FunctionFailed.code in text:
        return revive(text)
    if NEGATIVE_WEIGHT in text:
        return NegativeWeight(
            sentence("a row was taken away from '{}' that is not there", Name(epoch.stage.table)),
            where=where,
            hint=sentence("verify its inputs; then drop '{}' and create it again", Name(epoch.stage.table)),
        )
    found = _FAILS_ON_A_ROW.search(text)
    if found is None:
        return file_fault(text, [*(span.relation.name for span in epoch.spans), epoch.stage.table])
    return RowFailed(
        # Both go on with advice on their own settings.
        sentence("an expression of '{}' fails on a row: {}", Name(epoch.stage.table), found.group().split(". ")[0]),
        where=where,
        hint="leave such rows out with WHERE, or TRY_CAST and NULLIF",
    )
