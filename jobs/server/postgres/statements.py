"""From the text of a query message to statements, each as a value that says what to do.

    BEGIN; DECLARE c CURSOR FOR SELECT …; FETCH 100 FROM c
    Begin()  Declare('c', 'SELECT …')     Fetch('c', 100)

Only what a session itself does is read here. A query is left as it is for whoever answers it; all else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from strandline.jobs.server.pg_values.refusal import Refusal, SqlState
from strandline.jobs.server.postgres.commands import (
    Back,
    Begin,
    Close,
    Command,
    Deallocate,
    Declare,
    Done,
    End,
    Fetch,
    Isolation,
    Query,
    Reset,
    Savepoint,
    Set,
    Show,
    Statement,
)
from strandline.jobs.server.postgres.copying import HOW_TO_WRITE, copy_of

_PIECE: Final = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|;""", re.S
)
"""Everything that may hold a semicolon which ends nothing, and the semicolons that do."""
_COMMENTS: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.S)
_NAME: Final = r'("(?:[^"]|"")+"|[\w.$]+)'
_FORWARD: Final = r"(?:(NEXT|FORWARD ALL|FORWARD \d+|FORWARD|ALL|\d+)\s+)?(?:FROM\s+|IN\s+)?"
_LEVEL: Final = r"ISOLATION LEVEL (SERIALIZABLE|REPEATABLE READ|READ COMMITTED|READ UNCOMMITTED)"
_WRITES: Final = re.compile(
    r"ALTER|ANALYZE|CALL|CLUSTER|COMMENT|CREATE|DELETE|DO|DROP|GRANT|IMPORT|INSERT|LOCK|MERGE|REASSIGN|REFRESH"
    r"|REINDEX|REVOKE|SECURITY|TRUNCATE|UPDATE|VACUUM"
)
_QUERIES: Final = frozenset(("SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN"))


def statements(text: str) -> list[Statement]:
    """The statements of a text, without empty ones.

    Raises:
        Refusal: one of them is none that is taken.
    """
    found: list[Statement] = []
    begin = 0
    ends = [piece.start() for piece in _PIECE.finditer(text) if piece[0] == ";"]
    for end in (*ends, len(text)):
        comments = _COMMENTS.match(text, begin, end)
        first = comments.end() if comments else begin
        part = text[first:end].rstrip()
        if part:
            found.append(Statement(part, first, _command(part, first)))
        begin = end + 1
    return found


def _command(text: str, begin: int) -> Command:
    word = re.split(r"\W", text, maxsplit=1)[0].upper()
    if word in _QUERIES or text.startswith("("):
        return Query()
    if word == "COPY":
        return copy_of(text, begin)
    for pattern, make in _COMMANDS:
        found = pattern.fullmatch(text)
        if found is not None:
            return make(found)
    if _WRITES.fullmatch(word):
        raise Refusal(
            SqlState.READ_ONLY,
            f"{word} is not taken here: this port reads",
            hint=HOW_TO_WRITE,
            position=begin + 1,
        )
    raise Refusal(
        SqlState.NOT_SUPPORTED if word else SqlState.SYNTAX,
        f"'{word or text[:20]}' begins no statement that is taken here",
        hint="SELECT, EXPLAIN, COPY … TO STDOUT, SET, SHOW, BEGIN, COMMIT, ROLLBACK, DECLARE, FETCH and CLOSE are",
        position=begin + 1,
    )


def name_of(text: str) -> str:
    """The name that an identifier stands for."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()


def _named(text: str) -> str | None:
    return None if text.upper() == "ALL" else name_of(text)


def _value(text: str) -> str:
    text = text.strip()
    return text[1:-1].replace("''", "'") if text.startswith("'") and text.endswith("'") else text


def _level(text: str | None) -> str:
    return " ".join((text or "").lower().split())


def _count(text: str | None) -> int | None:
    words = (text or "NEXT").upper().split()
    return None if "ALL" in words else int(words[-1]) if words[-1].isdecimal() else 1


def _declare(found: re.Match[str]) -> Command:
    return Declare(name_of(found[1]), found[3], found.start(3), bool(found[2]))


def _fetch(found: re.Match[str]) -> Command:
    return Fetch(name_of(found[3]), _count(found[2]), found[1].upper() == "MOVE")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(" ", r"\s+"), re.I | re.S)


_COMMANDS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Command]], ...]] = (
    (_pattern(rf"(?:BEGIN|START TRANSACTION)\b.*?(?:{_LEVEL}.*)?"), lambda found: Begin(_level(found[1]))),
    (_pattern(r"(?:COMMIT|END)(?: WORK| TRANSACTION)?(?: AND NO CHAIN)?"), lambda _: End(True)),
    (_pattern(r"(?:ROLLBACK|ABORT)(?: WORK| TRANSACTION)?(?: AND NO CHAIN)?"), lambda _: End(False)),
    (_pattern(rf"SAVEPOINT {_NAME}"), lambda found: Savepoint(name_of(found[1]))),
    (_pattern(rf"RELEASE(?: SAVEPOINT)? {_NAME}"), lambda found: Back(name_of(found[1]), True)),
    (
        _pattern(rf"ROLLBACK(?: WORK| TRANSACTION)? TO(?: SAVEPOINT)? {_NAME}"),
        lambda found: Back(name_of(found[1]), False),
    ),
    (
        _pattern(
            rf"DECLARE {_NAME}(?: BINARY| ASENSITIVE| INSENSITIVE| NO SCROLL)* CURSOR"
            r"(?: WITHOUT HOLD|( WITH HOLD))? FOR (.+)"
        ),
        _declare,
    ),
    (_pattern(rf"(FETCH|MOVE) {_FORWARD}{_NAME}"), _fetch),
    (_pattern(rf"CLOSE {_NAME}"), lambda found: Close(_named(found[1]))),
    (_pattern(rf"DEALLOCATE(?: PREPARE)? {_NAME}"), lambda found: Deallocate(_named(found[1]))),
    (
        _pattern(rf"SET (SESSION CHARACTERISTICS AS )?TRANSACTION .*?{_LEVEL}.*"),
        lambda found: Isolation(_level(found[2]), bool(found[1])),
    ),
    (_pattern(r"SET (?:SESSION CHARACTERISTICS AS )?TRANSACTION .+"), lambda _: Done("SET")),
    (_pattern(r"SET (?:SESSION |LOCAL )?(TIME ZONE|NAMES) (.+)"), lambda found: Set(found[1], _value(found[2]))),
    (
        _pattern(rf"SET (?:SESSION |LOCAL )?{_NAME}\s*(?:=| TO )\s*(.+)"),
        lambda found: Set(name_of(found[1]), _value(found[2])),
    ),
    (
        _pattern(rf"SHOW (TRANSACTION ISOLATION LEVEL|TIME ZONE|{_NAME})"),
        lambda found: Show(_named(re.sub(r"\s+", " ", found[1]))),
    ),
    (_pattern(rf"RESET {_NAME}"), lambda found: Reset(_named(found[1]))),
    (_pattern(r"DISCARD (?:ALL|PLANS|SEQUENCES|TEMP|TEMPORARY)"), lambda found: Done("DISCARD ALL")),
    (_pattern(r"UNLISTEN .+"), lambda _: Done("UNLISTEN")),
)
