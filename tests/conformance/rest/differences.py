"""The deliberate differences from ksqlDB's REST interface: every case that is skipped is skipped by one of these."""

from __future__ import annotations

from typing import Final

from tests.conformance.cases import Case
from tests.conformance.differences import Difference

DIFFERENCES: Final = (
    Difference(
        "any SELECT is answered",
        "ksqlDB refuses what would scan a table, or group or join; here limits of time, memory and rows decide",
        refusal=r"table.scan|Bound on key columns|cannot be combined with|between a key column and a resolvable"
        r"|don't support (GROUP BY|JOIN|WINDOW)|ROWPARTITION|WHERE clause",
    ),
    Difference(
        "a push query filters and projects",
        "what groups, joins or windows is defined as a view, and its changes are followed",
        statements=r"SELECT\b[^;]*\b(GROUP\s+BY|JOIN|COUNT\s*\()[^;]*\bEMIT\s+CHANGES",
    ),
    Difference(
        "a row of a view has no time",
        "it is what several events came to; a view that wants their latest time selects MAX(ROWTIME)",
        statements=r"CREATE\s+TABLE.*SELECT\b[^;]*\bROWTIME\b[^;]*\bFROM\s+(AGGREGATE|NEW_INPUT)",
    ),
)


def skipped(case: Case) -> str | None:
    """Why a case is not run; None when it is."""
    found = next((difference for difference in DIFFERENCES if difference.covers(case)), None)
    return f"{found.title}: {found.reason}" if found else None
