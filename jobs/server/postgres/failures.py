"""Errors as PostgreSQL's clients know them: one mapping from typed errors to SQLSTATEs.

The hint goes into the field HINT, the code (`sql.unknown_name`) and the action into DETAIL, line and column into
POSITION, which editors and psql point at.
"""

from __future__ import annotations

from typing import Final

from strandline.jobs.model.errors import (
    FunctionFailed,
    InvalidQuery,
    NotSupported,
    SourceUnavailable,
    SqlError,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.serve import errors as serving
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState
from strandline.state_store import errors as store

_STATES: Final[dict[type[store.StrandlineError], SqlState]] = {
    serving.Unauthenticated: SqlState.WRONG_PASSWORD,
    serving.Forbidden: SqlState.FORBIDDEN,
    serving.TimeLimit: SqlState.CANCELLED,
    serving.Cancelled: SqlState.CANCELLED,
    serving.TooLarge: SqlState.TOO_LARGE,
    serving.Busy: SqlState.TOO_MANY_CONNECTIONS,
    serving.NotYet: SqlState.NOT_READY,
    serving.TooStale: SqlState.NOT_READY,
    serving.SnapshotExpired: SqlState.SNAPSHOT_TOO_OLD,
    serving.VersionNotKept: SqlState.SNAPSHOT_TOO_OLD,
    serving.NoConsistentSnapshot: SqlState.NOT_READY,
    serving.KeyRequired: SqlState.NOT_SUPPORTED,
    serving.RequestRefused: SqlState.NOT_SUPPORTED,
    SqlSyntaxError: SqlState.SYNTAX,
    UnknownName: SqlState.UNKNOWN_TABLE,
    TypeMismatch: SqlState.TYPE_MISMATCH,
    NotSupported: SqlState.NOT_SUPPORTED,
    InvalidQuery: SqlState.INVALID_QUERY,
    SqlError: SqlState.INVALID_QUERY,
    FunctionFailed: SqlState.INVALID_QUERY,
    SourceUnavailable: SqlState.NOT_READY,
    store.TableMissing: SqlState.UNKNOWN_TABLE,
    store.CorruptState: SqlState.CORRUPT,
    store.StrandlineError: SqlState.INTERNAL,
}


def state_of(error: store.StrandlineError) -> SqlState:
    """The SQLSTATE of an error: that of its class, or of the nearest one above."""
    if isinstance(error, Refusal):
        return error.state
    if isinstance(error, UnknownName) and error.message.startswith("unknown column"):
        return SqlState.UNKNOWN_COLUMN
    return next(_STATES[each] for each in type(error).__mro__ if each in _STATES)


def fields_of(error: store.StrandlineError, text: str, begin: int) -> dict[str, str]:
    """The fields of an ErrorResponse, by their letters.

    Args:
        text: that of the statement it is about.
        begin: where the statement begins in the text that the client sent, characters from 0.
    """
    fatal = isinstance(error, Refusal) and error.fatal
    severity = "FATAL" if fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": state_of(error), "M": error.message}
    if not isinstance(error, Refusal):
        fields["D"] = f"code {error.code}, action {error.action}"
    if error.hint is not None:
        fields["H"] = error.hint
    if isinstance(error, SqlError) and error.line is not None:
        fields["P"] = str(begin + place_of(text, error.line, error.column or 1) + 1)
    elif isinstance(error, Refusal) and error.position is not None:
        fields["P"] = str(begin + error.position)
    return fields


def place_of(text: str, line: int, column: int) -> int:
    """The place in a text, characters from 0, of a line and a column from 1; its end when it has fewer."""
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return min(before + column - 1, max(len(text) - 1, 0))


def line_and_column(text: str, place: int) -> tuple[int, int]:
    """The line and column, from 1, of a place in a text, from 0."""
    before = text[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
