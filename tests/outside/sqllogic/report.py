"""What a run came to, as tables of Markdown, and the same in the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.outside.sqllogic.outcomes import RESULTS, Outcome

_MARKS: Final = ("<!-- sqllogic: begin -->", "<!-- sqllogic: end -->")
_MOST_REASONS: Final = 25


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line per suite and mode."""
    lines = [f"| suite | | {' | '.join(RESULTS)} |", f"| --- | --- |{' ---: |' * len(RESULTS)}"]
    for suite in dict.fromkeys(each.suite for each in outcomes):
        for mode in ("view", "pull", "refused"):
            found = Counter(each.result for each in outcomes if (each.suite, each.mode) == (suite, mode))
            lines.append(f"| {suite} | {mode} | {' | '.join(str(found[result]) for result in RESULTS)} |")
    return lines


def reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """The most frequent reasons of what is refused, of what differs as documented, and of what is not asked."""
    lines = []
    for result in ("refused", "as documented", "answered", "not asked"):
        found = Counter(each.reason for each in outcomes if each.result == result and each.mode != "pull")
        if found:
            lines += ["", f"**{result}**", ""]
            lines += [f"- {count} × {reason}" for reason, count in found.most_common(_MOST_REASONS)]
    return lines


def closing(outcomes: Iterable[Outcome]) -> str:
    """The last line of a run."""
    found = Counter(each.result for each in outcomes)
    return ", ".join(f"{found[result]} {result}" for result in RESULTS)


def write_doc(outcomes: Sequence[Outcome], file: Path, how: str) -> None:
    """Put the tables into their marked place in a page.

    Raises:
        ValueError: a mark is missing.
    """
    text = file.read_text(encoding="utf-8")
    begin, end = (text.index(mark) for mark in _MARKS)
    lines = ["", f"Made by `{how}`.", ""]
    lines += [*table(outcomes), *reasons(outcomes), "", closing(outcomes), ""]
    file.write_text(text[: begin + len(_MARKS[0])] + "\n".join(lines) + text[end:], encoding="utf-8")
