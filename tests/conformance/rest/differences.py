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
        r"|don't support (GROUP BY|JOIN|WINDOW)|ROWPARTITION|WHERE clause|isn't queryable"
        r"|Primary key columns can not be NULL|Like condition must be between strings",
    ),
    Difference(
        "SUM of INT is BIGINT",
        "as in every SQL: a sum of many does not fit the type of one",
        statements=r"SUM\(",
    ),
    Difference(
        "topics whose keys carry a window",
        "WINDOW_TYPE of a source reads keys in Kafka Streams' own binary form",
        statements=r"WINDOW_TYPE",
    ),
    Difference(
        "arithmetic with NULL is NULL",
        "as in every SQL",
        refusal=r"null are not supported",
    ),
    Difference(
        "hour 24 is none",
        "the day after has that moment, as 00:00",
        statements=r"T24\b",
    ),
    Difference(
        "records in a view's own topic",
        "a view is computed from its inputs alone, and others cannot write it",
        cases=frozenset({"pull-queries-against-materialized-table-table-joins.json: table join pipeline - JSON"}),
    ),
    Difference(
        "columns of headers stand where they were written",
        "and the header says their type; ksqlDB moves them before the value",
        cases=frozenset({"pull-queries-with-headers.json: select * against CST table with headers"}),
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
