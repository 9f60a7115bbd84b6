"""Shows what `strandline verify` found: a table for people, one JSON object per check for scripts."""

from __future__ import annotations

from dataclasses import astuple, fields
from itertools import groupby
from typing import TYPE_CHECKING

from strandline.jobs.cli.output import Output, say
from strandline.jobs.operate.verify.findings import Check, counted
from strandline.jobs.serve.results import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESULTS = {True: ("ok", "green"), False: ("BROKEN", "bold red"), None: ("skipped", "yellow")}


def show(checks: Sequence[Check], *, json: bool) -> bool:
    """Write the checks to standard output; false if one failed.

    For people, the checks of a table that hold share a line; each of the others has its own.
    """
    if json:
        Output(json=True).write(Rows(tuple(each.name for each in fields(Check)), [astuple(check) for check in checks]))
    else:
        _print_table(checks)
    broken = list(dict.fromkeys(check.table for check in checks if check.ok is False))
    say(_summary(checks, broken))
    return not broken


def _print_table(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table("table", "result", "check", "found")
    for name, group in groupby(checks, key=lambda check: check.table):
        own = _lines(list(group))
        # A table of which all holds is one line, and twenty of them are a screen.
        if len(own) > 1:
            shown.add_section()
        for lines in own:
            word, style = _RESULTS[lines[0].ok]
            shown.add_row(
                Text(name),
                Text(word, style),
                lines[0].check if lines[0].ok is not True else counted(len(lines), "check"),
                Text(_found(lines)),
            )
        if len(own) > 1:
            shown.add_section()
    Console().print(shown)


def _lines(checks: Sequence[Check]) -> list[list[Check]]:
    """The checks of one table as they share a line; what is broken comes first."""
    broken = [[check] for check in checks if check.ok is False]
    fine = [check for check in checks if check.ok]
    return [*broken, *([fine] if fine else []), *([check] for check in checks if check.ok is None)]


def _found(lines: Sequence[Check]) -> str:
    if lines[0].ok:
        return next((each.what for each in lines if each.check == "row_count"), lines[0].what)
    parts = (lines[0].what, lines[0].where, f"hint: {lines[0].hint}" if lines[0].hint else None)
    return "\n".join(part for part in parts if part)


def _summary(checks: Sequence[Check], broken: Sequence[str]) -> str:
    tables = counted(len({check.table for check in checks}), "table")
    skipped = sum(check.ok is None for check in checks)
    made = f"{counted(len(checks) - skipped, 'check')} of {tables}, {skipped} skipped"
    return f"{made}: {'broken: ' + ', '.join(broken) if broken else 'all is well'}"
