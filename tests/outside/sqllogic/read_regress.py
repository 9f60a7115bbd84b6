"""The reader of PostgreSQL's regression tests: `sql/NAME.sql`, and what psql printed in `expected/NAME.out`.

psql echoes each statement and prints what it gives:

    SELECT * FROM t;
     i | j
    ---+----
     1 | 10
    (1 row)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.outside.sqllogic.script import LeftOut, Query, Record, Script, Statement

_RULE: Final = re.compile(r"-[-+]*")
# What changes something is set up, not asked.
_CHANGES: Final = re.compile(
    r"\s*SELECT\s+(?:pgivm\.)?(?:create_immv|refresh_immv|set_config)\s*\("
    r"|\s*WITH\b.*\bAS\s*\(\s*(?:INSERT|UPDATE|DELETE)\b",
    re.IGNORECASE | re.DOTALL,
)
_COUNT: Final = re.compile(r"\(\d+ rows?\)")


def read(file: Path, folder: Path) -> Script:
    """The script of `sql/NAME.sql` below `folder`, with the answers of `expected/NAME.out`."""
    printed = (file.parent.parent / "expected" / f"{file.stem}.out").read_text(encoding="utf-8").splitlines()
    records: list[Record] = []
    at = 0
    statements = list(_statements(file.read_text(encoding="utf-8").splitlines()))
    for place, (number, lines) in enumerate(statements):
        at = _after(printed, at, lines)
        following = statements[place + 1][1] if place + 1 < len(statements) else None
        end = _begin(printed, at, following) if following else len(printed)
        records.append(_record("\n".join(lines), number, printed[at:end]))
    return Script(str(file.relative_to(folder)), tuple(records))


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line, the lines of a statement), each up to a `;` at a line's end."""
    begun: list[str] = []
    for number, line in enumerate(lines, 1):
        if not begun and (not line.strip() or line.startswith(("--", "\\"))):
            continue
        begun.append(line)
        if re.search(r";\s*(--.*)?$", line) and "\n".join(begun).count("$$") % 2 == 0:
            yield number - len(begun) + 1, begun
            begun = []


def _begin(printed: Sequence[str], at: int, lines: Sequence[str]) -> int:
    """Where the echo of a statement begins, from `at` on."""
    for begin in range(at, len(printed) - len(lines) + 1):
        if list(printed[begin : begin + len(lines)]) == list(lines):
            return begin
    return len(printed)


def _after(printed: Sequence[str], at: int, lines: Sequence[str]) -> int:
    return min(_begin(printed, at, lines) + len(lines), len(printed))


def _record(sql: str, number: int, output: Sequence[str]) -> Record:
    if ":'" in sql:
        return LeftOut(number, "a variable of psql")
    if any(line.startswith("ERROR:") for line in output):
        return Statement(sql, number, True)
    rule = next((at for at, line in enumerate(output) if at > 0 and _RULE.fullmatch(line.strip())), None)
    if rule is None or _CHANGES.match(sql) or re.match(r"\s*(SELECT|WITH|VALUES|TABLE)\b", sql, re.IGNORECASE) is None:
        return Statement(sql, number, False)
    # pg_ivm adds columns of its own to what `*` shows.
    shown = [place for place, name in enumerate(output[rule - 1].split("|")) if not name.strip().startswith("__ivm_")]
    rows = []
    for line in output[rule + 1 :]:
        if _COUNT.fullmatch(line.strip()):
            break
        cells = line.split("|")
        rows.append("|".join(cells[place] if place < len(cells) else "" for place in shown))
    return Query(sql, number, tuple(rows), len(shown), "barred")
