"""The verdict of a quality check, as data: whether it holds, the numbers it read, and a text for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.jobs.model.options import Severity


@dataclass(frozen=True)
class Verdict:
    """The verdict of one check of one view.

    Attributes:
        ok: None when the check could not be made; `what` is the reason then.
        what: one sentence: what was found.
        severity: of a failure.
        numbers: {label: value}, to be plotted over time: labels never change.
        markdown: the details, for people.
    """

    check: str
    ok: bool | None
    what: str
    severity: Severity = "error"
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    markdown: str = ""
