"""The reader of sqllogictest files, in the dialects of DuckDB and of RisingWave.

    statement ok | error | maybe | count N        query III [nosort | rowsort | valuesort] [label]
    CREATE TABLE …                                SELECT …
                                                  ----
                                                  1 2 3

Loops are unrolled, `include` is read in place. What concerns a run of the engine alone (restarts, sleeps, other
connections, threads) leaves the file, or the record, out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.outside.sqllogic.script import Form, LeftOut, Query, Record, Script, Statement

_IGNORED: Final = frozenset(
    [
        "hash-threshold",
        "set",
        "reset",
        "sleep",
        "tags",
        "subtest",
        "control",
        "reconnect",
        "result_mode",
        "load",
        "unzip",
        "test-env",
        "flush",
    ]
)
"""Directives that change nothing of what the queries mean."""

_HARMLESS: Final = frozenset(
    [
        "skip_reload",
        "vector_size",
        "noforcestorage",
        "no_alternative_verify",
        "notwindows",
        "64bit",
        "strinline",
        "block_size",
        "exact_vector_size",
        "no_extension_autoloading",
        "allow_unsigned_extensions",
        "no_vector_verification",
        "parquet",
        "json",
        "icu",
        "openivm",
    ]
)
"""What a file may require and a runner of queries can do without: the rest is an extension."""

_THREADS: Final = "several connections, threads or restarts"
_UNFIT: Final[Mapping[str, str]] = {
    "system": "runs programs",
    **dict.fromkeys(("connection", "concurrentloop", "concurrentforeach", "restart", "template"), _THREADS),
}
"""Directives of files that cannot be run, and why."""

_GROUPS: Final[Mapping[str, str]] = {
    "<integral>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint",
    "<signed>": "tinyint smallint integer bigint hugeint",
    "<unsigned>": "utinyint usmallint uinteger ubigint uhugeint",
    "<numeric>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint float double",
    "<alltypes>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint float double"
    " bool interval varchar",
}
# A loop that feeds a table row by row is short; longer ones measure something.
_MOST_TURNS: Final = 100
_MOST_RECORDS: Final = 4000


def read(file: Path, folder: Path, form: Form) -> Script:
    """The script of a file below the suite's `folder`."""
    name = str(file.relative_to(folder))
    try:
        reader = _Reader(file, form)
        return Script(name, tuple(reader.records()))
    except _Unfit as unfit:
        return Script(name, (), unfit.args[0])


class _Unfit(Exception):
    """A file that cannot be run; why."""


@dataclass
class _Lines:
    lines: Sequence[str]
    at: int = 0

    def block(self, *, until_rule: bool = False) -> list[str]:
        """The lines up to an empty one, which is passed over; with `until_rule` up to `----` too."""
        found = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if until_rule and line.strip() == "----":
                break
            self.at += 1
            if not line.strip():
                break
            found.append(line)
        return found

    @property
    def at_rule(self) -> bool:
        return self.at < len(self.lines) and self.lines[self.at].strip() == "----"


class _Reader:
    def __init__(self, file: Path, form: Form) -> None:
        self._file = file
        self._form: Form = form
        self._skipping = False
        self._count = 0

    def records(self) -> Iterator[Record]:
        lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        yield from self._run(lines, {}, 0)

    def _run(self, lines: Sequence[str], names: Mapping[str, str], first: int) -> Iterator[Record]:
        text = _Lines(lines)
        left_out = ""
        while text.at < len(lines):
            line = lines[text.at].strip()
            number = first + text.at + 1
            text.at += 1
            if not line or line.startswith("#"):
                continue
            word, *rest = _filled(line, names).split()
            if word in ("skipif", "onlyif"):
                left_out = left_out or _condition(word, rest)
                continue
            if word == "halt":
                return
            if word in ("statement", "query"):
                made = self._record(word, rest, text, names, number)
                if not self._skipping:
                    yield LeftOut(number, left_out) if left_out else made
                left_out = ""
                self._counted()
                continue
            yield from self._directive(word, rest, text, names, first)

    def _counted(self) -> None:
        self._count += 1
        if self._count > _MOST_RECORDS:
            raise _Unfit(f"more than {_MOST_RECORDS} records")

    def _directive(
        self, word: str, rest: Sequence[str], text: _Lines, names: Mapping[str, str], first: int
    ) -> Iterator[Record]:
        match word:
            case "loop" | "foreach":
                begin = text.at
                body = _body(text)
                for value in _turns(word, rest):
                    yield from self._run(body, {**names, rest[0]: value}, first + begin)
            case "include":
                # The files of a whole folder are run by themselves.
                if "*" not in rest[0]:
                    yield from self._included(rest[0])
            case "mode":
                self._skipping = rest[0] == "skip"
            case "require" | "require-env":
                if rest[0] not in _HARMLESS:
                    raise _Unfit("needs an extension or a setting of the machine")
            case _ if word not in _IGNORED:
                raise _Unfit(_UNFIT.get(word, f"a directive that the reader does not know: {word}"))

    def _included(self, name: str) -> Iterator[Record]:
        for file in sorted(self._file.parent.glob(name)):
            inner = _Reader(file, self._form)
            for record in inner.records():
                self._counted()
                yield record

    def _record(self, word: str, rest: Sequence[str], text: _Lines, names: Mapping[str, str], number: int) -> Record:
        sql = _filled("\n".join(text.block(until_rule=True)), names)
        lines: list[str] | None = None
        if text.at_rule:
            text.at += 1
            lines = [_filled(each, names) for each in text.block()]
        if word == "statement":
            kind = rest[0] if rest else "ok"
            if kind == "error" and lines is not None and self._form == "spaced":
                _rest_of_message(text)
            return Statement(sql, number, {"ok": False, "count": False, "error": True}.get(kind))
        types = rest[0] if rest else ""
        if types == "error":
            return Statement(sql, number, True)
        known = re.fullmatch(r"[A-Z]+", types) is not None and self._form == "tabbed"
        # Queries that share a label are compared with each other, and state nothing.
        stated = None if lines is None or (not lines and len(rest) > 2) else tuple(lines)
        # Nor is the order looked at there of rows that such a query states.
        in_order = not {"rowsort", "valuesort"} & set(rest) and len(rest) < 3
        return Query(sql, number, stated, len(types) if known else 0, self._form, not in_order)


def _rest_of_message(text: _Lines) -> None:
    """Pass over the paragraphs of a message, which ends at two empty lines."""
    while text.at < len(text.lines) and text.lines[text.at].strip():
        text.block()


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"${{{name}}}", value).replace(f"{{{name}}}", value)
    return text


def _condition(word: str, rest: Sequence[str]) -> str:
    """Why the next record is left out; empty: it is not."""
    if word == "skipif":
        return "not for DuckDB" if rest[:1] == ["duckdb"] else ""
    return "" if rest[:1] == ["duckdb"] else "for certain engines or turns of a loop"


def _body(text: _Lines) -> Sequence[str]:
    begin, depth = text.at, 1
    while text.at < len(text.lines):
        word = text.lines[text.at].split(maxsplit=1)[:1]
        text.at += 1
        depth += {"loop": 1, "foreach": 1, "concurrentloop": 1, "endloop": -1}.get(word[0] if word else "", 0)
        if depth == 0:
            return text.lines[begin : text.at - 1]
    raise _Unfit("a loop without an end")


def _turns(word: str, rest: Sequence[str]) -> Sequence[str]:
    if word == "loop":
        numbers = range(int(rest[1]), int(rest[2]))
        if len(numbers) > _MOST_TURNS:
            raise _Unfit(f"a loop of more than {_MOST_TURNS} turns")
        return [str(each) for each in numbers]
    given = [value for each in rest[1:] for value in _GROUPS.get(each, each).split()]
    without = {each.removeprefix("!") for each in given if each.startswith("!")}
    return [each for each in given if not each.startswith("!") and each not in without]
