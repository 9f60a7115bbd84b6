"""One table of values, and expressions over it: each engine must compute the same, and what is written here.

`EXPECTED` is for the table's first row.
"""

from __future__ import annotations

from tests.support.function_cases import bytes, casts, collections, dialects, numbers, operators, text, times
from tests.support.function_cases.rows import COLUMNS, elaborated, table

EXPECTED: dict[str, object] = {
    **operators.EXPECTED,
    **casts.EXPECTED,
    **numbers.EXPECTED,
    **text.EXPECTED,
    **bytes.EXPECTED,
    **times.EXPECTED,
    **collections.EXPECTED,
    **dialects.EXPECTED,
}
__all__ = ["COLUMNS", "EXPECTED", "elaborated", "table"]
