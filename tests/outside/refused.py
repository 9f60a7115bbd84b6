"""What views of the suites need and the language refuses, with the code of the refusal.

A view that is maintained one day leaves this table for its suite's file.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = """
CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR, b INT, c INT, at TIMESTAMP, arr ARRAY<INT>);
CREATE TABLE u (id INT PRIMARY KEY, b INT, c INT, at TIMESTAMP);
"""


@dataclass(frozen=True)
class Refused:
    """A view that is refused.

    Attributes:
        origin: suite and case.
        select: what its view needs, over the tables here.
        code: the code of the refusal.
    """

    origin: str
    select: str
    code: str = "sql.not_supported"


REFUSED = (
    Refused(
        "Feldera asof_tests/test_asof",
        "SELECT t.id FROM t LEFT ASOF JOIN u MATCH_CONDITION (t.c >= u.c) ON t.id = u.id",
        "sql.syntax",
    ),
    Refused(
        "RisingWave temporal_join, of a table whose rows change",
        "SELECT t.id, u.c FROM t LEFT JOIN u FOR SYSTEM_TIME AS OF PROCTIME() ON t.id = u.id",
        "sql.invalid_query",
    ),
    Refused(
        "RisingWave aggregate/string_agg: mv2",
        "SELECT STRING_AGG(a, CAST(b AS VARCHAR) ORDER BY b) AS r FROM t",
        "sql.type_mismatch",
    ),
    Refused(
        "RisingWave aggregate/ordered_set_agg: mv_percentile_null",
        "SELECT PERCENTILE_CONT(NULL) WITHIN GROUP (ORDER BY b) AS r FROM t",
        "sql.type_mismatch",
    ),
    Refused("RisingWave aggregate/jsonb_agg", "SELECT JSONB_AGG(b ORDER BY b) AS r FROM t", "sql.invalid_query"),
    Refused(
        "RisingWave temporal_filter, now, now_semi_join",
        "SELECT id FROM t WHERE at > NOW() - INTERVAL '1' DAY",
        "sql.invalid_query",
    ),
    Refused(
        "RisingWave over_window/odd_frames",
        "SELECT COUNT(*) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND 10 PRECEDING) AS r FROM t",
        "sql.invalid_query",
    ),
    Refused(
        "RisingWave bug_fixes/issue_15198: an offset of windows",
        "SELECT b FROM TUMBLE(t, at, INTERVAL '1' DAY, INTERVAL '6' HOUR)",
        "sql.invalid_query",
    ),
    Refused(
        "RisingWave eowc",
        "SELECT window_start FROM TUMBLE(t, at, INTERVAL '30' MINUTE) GROUP BY window_start EMIT ON WINDOW CLOSE",
        "sql.syntax",
    ),
    Refused("RisingWave demo/ecommerce: a difference of times", "SELECT id, at - at AS r FROM t", "sql.type_mismatch"),
    Refused("Feldera aggregate_tests/test_some", "SELECT SOME(b > 1) AS r FROM t", "sql.unknown_name"),
)
