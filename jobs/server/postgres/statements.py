"""From the text of a query message to statements, each as a value that says what to do.

    BEGIN; DECLARE c CURSOR FOR SELECT …; FETCH 100 FROM c
    Begin()  Declare('c', 'SELECT …')     Fetch('c', 100)

Only what a session itself does is read here. A query is left as it is for whoever answers it; all else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from strandline.jobs.server.postgres.rows import BINARY, CSV, TEXT, CopyForm
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState
from strandline.jobs.sql.size import check_characters


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


# The statement COPY … TO STDOUT: what is copied, and in which form.
#
# COPY by_town TO STDOUT
# COPY (SELECT town FROM by_town) TO STDOUT WITH (FORMAT csv, HEADER)
# COPY (SELECT town FROM by_town) TO STDOUT CSV HEADER DELIMITER ';'     as before PostgreSQL 9, which psql sends

HOW_TO_WRITE: Final = (
    "apply statements with `strandline apply` or `strandline sql`, insert with POST /v1/streams/{stream}"
)

_COPIED_NAME: Final = r'(?:"(?:[^"]|"")+"|\w+)'
_COPY: Final = re.compile(
    rf"COPY\s*(?:\((?P<query>.+)\)|(?P<table>{_COPIED_NAME}(?:\s*\.\s*{_COPIED_NAME})*)\s*(?:\((?P<columns>[^()]+)\))?)"
    r"\s*TO\s+(?P<target>STDOUT|PROGRAM\b.*?|'[^']*')(?:\s+WITH)?\s*(?P<options>.*)",
    re.I | re.S,
)
_OPTION: Final = re.compile(
    r"""\s*(?P<name>FORCE\s+QUOTE|\w+)(?:\s+AS)?"""
    r"""(?:\s+(?P<value>E?'(?:[^']|'')*'|"(?:[^"]|"")*"|(?:ON|OFF|TRUE|FALSE|TEXT|BINARY|CSV)\b))?"""
    r"\s*,?",
    re.I,
)
_FORMS: Final = {"TEXT": TEXT, "CSV": CSV, "BINARY": BINARY}
_OFF: Final = ("OFF", "FALSE")
_ESCAPES: Final = {"\\t": "\t", "\\\\": "\\"}


def copy_of(text: str, begin: int) -> Copy:
    """The command of a text that begins with COPY.

    Args:
        begin: where the text begins in what the client sent, for errors.

    Raises:
        Refusal: it copies to the lake, to a file of the server's, or in a form that is not written here.
    """
    found = _COPY.fullmatch(text)
    if found is None:
        if re.search(r"\bFROM\s+(STDIN|PROGRAM|')", text, re.I):
            raise Refusal(
                SqlState.READ_ONLY,
                "COPY FROM is not taken here: this port reads",
                hint=HOW_TO_WRITE,
                position=begin + 1,
            )
        hint = "COPY table TO STDOUT, or COPY (SELECT …) TO STDOUT WITH (FORMAT csv, HEADER)"
        raise Refusal(SqlState.SYNTAX, "this COPY is not understood", hint=hint, position=begin + 1)
    if found["target"].upper() != "STDOUT":
        hint = "COPY … TO STDOUT; psql's \\copy writes a file of the client's"
        raise Refusal(SqlState.FORBIDDEN, "the server writes no files", hint=hint, position=begin + 1)
    form = _form(found["options"].strip(), begin)
    if found["query"] is not None:
        return Copy(found["query"], found.start("query"), form)
    query = f"SELECT {found['columns'] or '*'} FROM "
    return Copy(f"{query}{found['table']}", found.start("table") - len(query), form)


def _form(options: str, begin: int) -> CopyForm:
    if options.startswith("(") and options.endswith(")"):
        options = options[1:-1]
    given: dict[str, str | None] = {}
    place = 0
    while place < len(options):
        option = _OPTION.match(options, place)
        if option is None:
            raise _refused(options[place:], begin)
        given[option["name"].upper()] = option["value"]
        place = option.end()
    kind = _FORMS.get(_text(given.pop("FORMAT", None)).upper(), TEXT)
    for name, each in _FORMS.items():
        if name in given:
            given.pop(name)
            kind = each
    header = "HEADER" in given and (given.pop("HEADER") or "ON").upper() not in _OFF
    is_csv = kind == CSV
    form = CopyForm(
        kind,
        delimiter=_text(given.pop("DELIMITER", None)) or ("," if is_csv else "\t"),
        null=_text(given.pop("NULL", "''" if is_csv else "'\\N'")),
        header=header,
        quote=_text(given.pop("QUOTE", "'\"'")),
        escape=_text(given.pop("ESCAPE", None)),
    )
    encoding = _text(given.pop("ENCODING", None)).upper().replace("-", "")
    if given or encoding not in ("", "UTF8"):
        raise _refused(next(iter(given), "ENCODING"), begin)
    if len(form.delimiter) != 1 or len(form.quote) != 1 or len(form.escape) > 1:
        raise _refused("a delimiter, quote or escape of more than one character", begin)
    return form


def _refused(option: str, begin: int) -> Refusal:
    hint = "FORMAT text, csv or binary, DELIMITER, NULL, HEADER, QUOTE and ESCAPE are"
    return Refusal(SqlState.NOT_SUPPORTED, f"not taken in COPY: {option}", hint=hint, position=begin + 1)


def _text(literal: str | None) -> str:
    """The text of a literal, or of a bare word."""
    if literal is not None and literal.startswith('"'):
        return literal[1:-1].replace('""', '"')
    if literal is None or not literal.endswith("'"):
        return literal or ""
    text = literal[literal.index("'") + 1 : -1].replace("''", "'")
    return _ESCAPES.get(text, text) if literal[0] in "eE" else text


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
_EXPLAINS: Final = re.compile(r"EXPLAIN\s*(\(|(ANALYZE|VERBOSE)\b)", re.I)
_TAKEN: Final = {
    "DECLARE": "DECLARE c CURSOR [WITH HOLD] FOR SELECT …: a cursor goes forward, and its rows stay as they are",
    "FETCH": "FETCH 100 FROM c, or ALL, NEXT, FORWARD 100: a cursor goes forward",
    "MOVE": "MOVE 100 IN c, or ALL, NEXT, FORWARD 100: a cursor goes forward",
    "SET": "SET name = value, SET TIME ZONE, SET TRANSACTION ISOLATION LEVEL …",
}
"""Statements of which other forms are taken."""
_QUERIES: Final = frozenset(("SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN"))


def statements(text: str) -> list[SessionStatement]:
    """The statements of a text, without empty ones.

    Raises:
        Refusal: one of them is none that is taken.
        NotSupported: the text is too long.
    """
    check_characters(text)
    found: list[SessionStatement] = []
    begin = 0
    ends = [piece.start() for piece in _PIECE.finditer(text) if piece[0] == ";"]
    for end in (*ends, len(text)):
        comments = _COMMENTS.match(text, begin, end)
        first = comments.end() if comments else begin
        part = text[first:end].rstrip()
        if part:
            found.append(SessionStatement(part, first, _command(part, first)))
        begin = end + 1
    return found


def _command(text: str, begin: int) -> Command:
    word = re.split(r"\W", text, maxsplit=1)[0].upper()
    if _EXPLAINS.match(text):
        hint = "EXPLAIN SELECT …, which shows the plan as lines of text"
        raise Refusal(SqlState.NOT_SUPPORTED, "EXPLAIN takes no options here", hint=hint, position=begin + 1)
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
    if word in _TAKEN:
        message, hint = f"this {word} is not taken here", _TAKEN[word]
        raise Refusal(SqlState.NOT_SUPPORTED, message, hint=hint, position=begin + 1)
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
        lambda found: ShowSetting(_named(re.sub(r"\s+", " ", found[1]))),
    ),
    (_pattern(rf"RESET {_NAME}"), lambda found: Reset(_named(found[1]))),
    (_pattern(r"DISCARD (?:ALL|PLANS|SEQUENCES|TEMP|TEMPORARY)"), lambda found: Done("DISCARD ALL")),
    (_pattern(r"UNLISTEN .+"), lambda _: Done("UNLISTEN")),
)
