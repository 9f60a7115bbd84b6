"""The rules by which an answer is not asked for, or differs as our documentation says: kinds, never single queries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Difference:
    """A documented difference between the dialects.

    Attributes:
        settings: with these DuckDB answers as our language says. An answer is excused when DuckDB gives it so, and not
            without them.
    """

    title: str
    settings: dict[str, str]


_NULLS: Final = {"default_null_order": "nulls_first_on_asc_last_on_desc"}
_DIVISION: Final = {"integer_division": "true"}

DIFFERENCES: Final = (
    Difference("NULL is less than any value: first with ASC, last with DESC", _NULLS),
    Difference("INT / INT is an INT", _DIVISION),
    Difference("NULL is less than any value, and INT / INT is an INT", _NULLS | _DIVISION),
)

_NOT_ASKED: Final = (
    (
        re.compile(
            r"\s*(?:EXPLAIN|PRAGMA|SHOW|DESCRIBE|DESC|SUMMARIZE|CALL|EXECUTE|COPY|SET|PIVOT|UNPIVOT|ANALYZE|INSERT|UPDATE"
            r"|DELETE|CREATE|ALTER|DROP|CHECKPOINT|EXPORT|IMPORT|VACUUM|MERGE|ATTACH|DETACH|USE|RESET|LOAD|PREPARE|TABLE"
            r"|DECLARE|FETCH|CLOSE|BEGIN|COMMIT|ROLLBACK|FLUSH)\b",
            re.IGNORECASE,
        ),
        "no SELECT",
    ),
    (
        re.compile(
            r"\b(?:random|rand|setseed|gen_random_uuid|uuid|uuidv\d|now|today|current_\w+|localtime\w*|get_current_\w+"
            r"|transaction_timestamp|proctime|nextval|currval|txid_current|pg_sleep)\s*\("
            r"|\bcurrent_(?:date|time|timestamp|user|schema|role|database)\b|\b(?:using|table)sample\b|\bsample\s+\d",
            re.IGNORECASE,
        ),
        "is not the same twice",
    ),
    (
        re.compile(
            r"\b(?:pg_\w+|duckdb_\w+|information_schema|rw_catalog|sqlite_master|pragma_\w+|read_(?:csv|parquet|json)\w*"
            r"|parquet_\w+|glob|current_setting|getvariable|getenv|sql_auto_complete|stats|typeof|pg_typeof|alias|version"
            r"|vector_type|query_table|query|has_\w+_privilege|obj_description|col_description|format_type|regclass"
            r"|_rw_timestamp|_row_id|rowid|checkpoint|json_execute_serialized_sql|test_all_types|test_vector_types"
            r"|repeat_row|enum_\w+)\b",
            re.IGNORECASE,
        ),
        "asks the engine about itself, its catalog, types or files",
    ),
)


def not_asked(sql: str) -> str:
    """Why a query is not asked; empty: it is."""
    text = re.sub(r"'(?:[^']|'')*'", "''", re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL))
    return next((reason for pattern, reason in _NOT_ASKED if _found(pattern, text)), "")


def _found(pattern: re.Pattern[str], text: str) -> bool:
    begins = pattern.pattern.startswith(r"\s*(?:EXPLAIN")
    return (pattern.match(text) if begins else pattern.search(text)) is not None
