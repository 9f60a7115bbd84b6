"""What the runs came to, as tables of Markdown, and the same in the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.outside.dbt_projects.run import Came, Outcome

_MARKS: Final = ("<!-- dbt projects: begin -->", "<!-- dbt projects: end -->")


def table(came: Sequence[Came]) -> list[str]:
    """A line per project, then what is refused or differs, and why."""
    lines = [
        "| project | models | incremental | run unchanged | rows equal | but for keys | logic deleted: run "
        "| rows equal | but for keys | dbt-duckdb's incremental runs that differ | tests alike |",
        "| --- |" + " ---: |" * 10,
    ]
    for each in came:
        alike = sum(count for (one, other), count in each.tests.items() if one == other)
        cells = (
            *(each.name, len(each.unchanged), sum(found.incremental for found in each.unchanged)),
            *_counts(each.unchanged),
            *_counts(each.deleted),
            *(len(each.stale), f"{alike} of {each.tests.total()}"),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, "", *_reasons(came)]


def _counts(found: Sequence[Outcome]) -> tuple[int, int, int]:
    """How many run, have equal rows, and have rows that are equal but for hashed keys."""
    kinds = Counter(each.kind for each in found)
    return len(found) - kinds["refused"], kinds["equal"], kinds["other keys"]


def _reasons(came: Sequence[Came]) -> Iterator[str]:
    lines = [
        (project.name, each.model, each.kind, _line(each.why))
        for project in came
        for each in (*project.unchanged, *project.deleted)
        if each.kind not in ("equal", "other keys") and each.why != "skipped"
    ]
    if lines:
        yield from ("| project | model | | why |", "| --- | --- | --- | --- |")
        for line in dict.fromkeys(lines):
            yield f"| {' | '.join(line)} |"
    below = Counter(each.name for each in came for found in each.unchanged if found.why == "skipped")
    yield from (f"- {count} models of {name} read one that is refused" for name, count in below.items())


def _line(why: str) -> str:
    """A refusal's own words."""
    text = " ".join(why.split())
    found = re.search(r"\[[a-z_.]+\] .*?(?= compiled code at|$)", text)
    return (found[0] if found else text).replace("|", "\\|")[:300]


def write_doc(came: Sequence[Came], file: Path) -> None:
    """Put the tables into their marked place in a page.

    Raises:
        ValueError: a mark is missing.
    """
    text = file.read_text(encoding="utf-8")
    begin, end = (text.index(mark) for mark in _MARKS)
    lines = ["", "", "Made by `python -m tests.outside.dbt_projects DIR`.", "", *table(came), "", ""]
    file.write_text(text[: begin + len(_MARKS[0])] + "\n".join(lines) + text[end:], encoding="utf-8")
