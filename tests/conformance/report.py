"""What a run came to: a table per class, the closing line, and the same as JSON and in the documentation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.conformance.cases import CLASSES
from tests.conformance.differences import DIFFERENCES

Result = Literal["passed", "failed", "skipped"]
_FIGURES = ("<!-- figures: begin -->", "<!-- figures: end -->")
_REST = ("<!-- rest: begin -->", "<!-- rest: end -->")
_LIST = ("<!-- differences: begin -->", "<!-- differences: end -->")
_HEADER = ("| class | mode | passed | failed | skipped | passed of run |", "| --- | --- | ---: | ---: | ---: | ---: |")


@dataclass(frozen=True)
class Outcome:
    """One case in one mode.

    Attributes:
        mode: `A`, `B`, or `-` for a case that must be refused.
        stage: where it failed: parse, define, plan, run, compare; for a refused one the error's code.
    """

    file: str
    name: str
    kind: str
    mode: str
    outcome: Result
    reason: str = ""
    stage: str = ""


def write_json(outcomes: Sequence[Outcome], file: Path) -> None:
    """A list with an object per case and mode."""
    rows = [{("class" if n == "kind" else n): value for n, value in asdict(each).items()} for each in outcomes]
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line per class and mode, as a table of Markdown; the percentage is of those that were run."""
    lines = [*_HEADER]
    for mode in sorted({each.mode for each in outcomes}):
        of_mode = [each for each in outcomes if each.mode == mode]
        known = [kind for kind in CLASSES if any(each.kind == kind for each in of_mode)]
        others = sorted({each.kind for each in of_mode} - set(known))
        for kind in (*known, *others):
            lines.append(_line(kind, mode, [each for each in of_mode if each.kind == kind]))
        if len(known) + len(others) > 1:
            lines.append(_line("all", mode, of_mode))
    return lines


def _line(kind: str, mode: str, outcomes: Sequence[Outcome]) -> str:
    passed, failed, left = (count(outcomes, result) for result in ("passed", "failed", "skipped"))
    share = f"{passed / (passed + failed):.1%}" if passed + failed else "-"
    return f"| {kind} | {mode} | {passed} | {failed} | {left} | {share} |"


def count(outcomes: Iterable[Outcome], result: str) -> int:
    return sum(each.outcome == result for each in outcomes)


def closing(outcomes: Sequence[Outcome]) -> list[str]:
    """The last lines of a run."""
    vague = sum(each.stage == "sql.not_supported" for each in outcomes if each.mode == "-" and each.outcome == "passed")
    lines = [f"negative: {vague} of the refused say only that something is not supported"] if vague else []
    totals = ", ".join(f"{count(outcomes, result)} {result}" for result in ("passed", "failed", "skipped"))
    return [*lines, totals]


def write_doc(outcomes: Sequence[Outcome], file: Path, how: str) -> None:
    """Put the figures and the list of differences into their marked places in `file`.

    Raises:
        ValueError: a mark is missing.
    """
    text = file.read_text(encoding="utf-8")
    text = _between(text, _FIGURES, [f"Made by `{how}`.", "", *table(outcomes), "", *closing(outcomes)])
    text = _between(text, _LIST, [f"- **{each.title}**: {each.reason}." for each in DIFFERENCES])
    file.write_text(text, encoding="utf-8")


def write_rest_doc(outcomes: Sequence[Outcome], file: Path, how: str) -> None:
    """Put the figures of pull and push queries, and what was skipped for which reason, into their marked place.

    Raises:
        ValueError: a mark is missing.
    """
    reasons = Counter(each.reason for each in outcomes if each.outcome == "skipped")
    listed = [f"- {number} × **{title}**: {reason}." for title, reason, number in _titled(reasons)]
    lines = [f"Made by `{how}`.", "", *by_mode(outcomes), "", *closing(outcomes), "", *listed]
    file.write_text(_between(file.read_text(encoding="utf-8"), _REST, lines), encoding="utf-8")


def by_mode(outcomes: Sequence[Outcome]) -> list[str]:
    """A line per mode, as a table of Markdown."""
    modes = sorted({each.mode for each in outcomes})
    return [*_HEADER, *(_line("all", mode, [each for each in outcomes if each.mode == mode]) for mode in modes)]


def _titled(reasons: Counter[str]) -> Iterator[tuple[str, str, int]]:
    for text, number in reasons.most_common():
        title, _, reason = text.partition(": ")
        yield title, reason, number


def _between(text: str, marks: tuple[str, str], lines: Sequence[str]) -> str:
    begin, end = (text.index(mark) for mark in marks)
    return "\n".join([text[: begin + len(marks[0])], "", *lines, "", text[end:]])
