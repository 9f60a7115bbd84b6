"""The outcome of a check, as data: it holds, it does not, or it could not be made, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        ok: None when the check could not be made; `what` is the reason then.
        what: one sentence: what was found.
        where: the place of a fault: a file, a folder; None: the table's folder.
        hint: what to type next; None: the way out that holds for the whole table.
    """

    ok: bool | None
    what: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Check:
    """One check of one table, with what it found: see `Outcome`. Only a failed one has a place and a hint."""

    table: str
    check: str
    ok: bool | None
    what: str
    where: str | None = None
    hint: str | None = None


def passed(what: str) -> Outcome:
    """What was looked at is as it must be."""
    return Outcome(True, what)


def failed(what: str, where: object = None, hint: str | None = None) -> Outcome:
    """What was looked at is not as it must be."""
    return Outcome(False, what, None if where is None else str(where), hint)


def skipped(why: str) -> Outcome:
    """The check could not be made."""
    return Outcome(None, why)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 file`, `3 files`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def sized(size: int) -> str:
    """A number of bytes as people read it: `8.5 kB`, `3.1 MB`, `1.2 GB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
