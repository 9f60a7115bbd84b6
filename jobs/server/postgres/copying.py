"""The statement COPY … TO STDOUT: what is copied, and in which form.

COPY by_town TO STDOUT
COPY (SELECT town FROM by_town) TO STDOUT WITH (FORMAT csv, HEADER)
COPY (SELECT town FROM by_town) TO STDOUT CSV HEADER DELIMITER ';'     the form of before PostgreSQL 9, which psql sends
"""

from __future__ import annotations

import re
from typing import Final

from strandline.jobs.server.pg_values.copied import BINARY, CSV, TEXT, CopyForm
from strandline.jobs.server.pg_values.refusal import Refusal, SqlState
from strandline.jobs.server.postgres.commands import Copy

HOW_TO_WRITE: Final = (
    "apply statements with `strandline apply` or `strandline sql`, insert with POST /v1/streams/{stream}"
)

_NAME: Final = r'(?:"(?:[^"]|"")+"|\w+)'
_COPY: Final = re.compile(
    rf"COPY\s*(?:\((?P<query>.+)\)|(?P<table>{_NAME}(?:\s*\.\s*{_NAME})*)\s*(?:\((?P<columns>[^()]+)\))?)"
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
