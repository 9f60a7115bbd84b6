"""What a statement of a client says to do, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.jobs.server.pg_values.copied import CopyForm


@dataclass(frozen=True)
class SessionStatement:
    """One statement.

    Attributes:
        text: its text.
        begin: where that begins in the text that the client sent, characters from 0.
        command: what to do.
    """

    text: str
    begin: int
    command: Command


@dataclass(frozen=True)
class Query:
    """A query, which another process answers."""


@dataclass(frozen=True)
class Declare:
    """DECLARE … CURSOR FOR a query. `hold`: it outlives its transaction. `begin` is where the query begins."""

    name: str
    query: str
    begin: int
    hold: bool


@dataclass(frozen=True)
class Copy:
    """COPY of the rows of a query to the client. `begin` is where the query begins."""

    query: str
    begin: int
    form: CopyForm


@dataclass(frozen=True)
class Fetch:
    """FETCH or MOVE, forward; `count` None: all that is left."""

    name: str
    count: int | None
    move: bool


@dataclass(frozen=True)
class Close:
    """CLOSE of a cursor; None: of all."""

    name: str | None


@dataclass(frozen=True)
class Deallocate:
    """DEALLOCATE of a prepared statement; None: of all."""

    name: str | None


@dataclass(frozen=True)
class Set:
    """SET of a setting."""

    name: str
    value: str


@dataclass(frozen=True)
class ShowSetting:
    """SHOW of a setting; None: of all."""

    name: str | None


@dataclass(frozen=True)
class Reset:
    """RESET of a setting; None: of all."""

    name: str | None


@dataclass(frozen=True)
class Begin:
    """BEGIN of a transaction; `isolation` empty: that of the session."""

    isolation: str = ""


@dataclass(frozen=True)
class Isolation:
    """SET TRANSACTION ISOLATION LEVEL; `session`: of all transactions from now on."""

    level: str
    session: bool


@dataclass(frozen=True)
class End:
    """The end of a transaction; `commit` False: ROLLBACK."""

    commit: bool


@dataclass(frozen=True)
class Savepoint:
    """SAVEPOINT: a place in a transaction to come back to."""

    name: str


@dataclass(frozen=True)
class Back:
    """ROLLBACK TO a savepoint; `release`: RELEASE, after which it is none any more."""

    name: str
    release: bool


@dataclass(frozen=True)
class Done:
    """A statement that has nothing to do here; `tag` is what a client hears."""

    tag: str


Command = (
    Query
    | Declare
    | Copy
    | Fetch
    | Close
    | Deallocate
    | Set
    | ShowSetting
    | Reset
    | Begin
    | Isolation
    | End
    | Savepoint
    | Back
    | Done
)
