"""What the port of PostgreSQL refuses by itself, and the SQLSTATEs that its clients hear."""

from __future__ import annotations

from enum import StrEnum

from strandline.state_store.errors import StrandlineError


class SqlState(StrEnum):
    """The SQLSTATEs that clients hear: PostgreSQL's, Appendix A of its documentation."""

    CONNECTION_REFUSED = "08004"
    PROTOCOL = "08P01"
    NOT_SUPPORTED = "0A000"
    INVALID_VALUE = "22023"
    NOT_UTF8 = "22021"
    BAD_BINARY = "22P03"
    BAD_TEXT = "22P02"
    IN_TRANSACTION = "25001"
    READ_ONLY = "25006"
    NO_TRANSACTION = "25P01"
    FAILED_TRANSACTION = "25P02"
    UNKNOWN_STATEMENT = "26000"
    NOT_AUTHENTICATED = "28000"
    WRONG_PASSWORD = "28P01"  # noqa: S105 — a code
    UNKNOWN_CURSOR = "34000"
    UNKNOWN_SAVEPOINT = "3B001"
    FORBIDDEN = "42501"
    SYNTAX = "42601"
    UNKNOWN_COLUMN = "42703"
    UNKNOWN_PARAMETER = "42704"
    UNKNOWN_TABLE = "42P01"
    CURSOR_TAKEN = "42P03"
    STATEMENT_TAKEN = "42P05"
    TYPE_MISMATCH = "42804"
    INVALID_QUERY = "42000"
    TOO_MANY_CONNECTIONS = "53300"
    TOO_LARGE = "54000"
    NOT_READY = "55000"
    SNAPSHOT_TOO_OLD = "72000"
    CANCELLED = "57014"
    CANNOT_CONNECT_NOW = "57P03"
    INTERNAL = "XX000"
    CORRUPT = "XX001"


class Refusal(StrandlineError):
    """What this port does not take: a write, an unknown setting, a message that is none. Stop: the hint says what to
    send instead.

    Args:
        state: its SQLSTATE.
        fatal: the connection ends with it.
        position: the character of the query's text, from 1, that it is about.
    """

    code = "postgres.refused"

    def __init__(
        self,
        state: SqlState,
        message: str,
        *,
        hint: str | None = None,
        fatal: bool = False,
        position: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.state = state
        self.fatal = fatal
        self.position = position
