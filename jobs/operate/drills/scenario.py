"""A scenario: one way in which something is lost, and how it is won back; data, of which `scenarios` is the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.operate.drills.ground import Ground


@dataclass(frozen=True)
class Recovery:
    """What a rehearsal came to.

    Attributes:
        seconds: from the loss to rows that are right again.
        rows: of the view afterwards.
        fault: why the rows are not what they must be; empty when they are.
        lost_versions, lost_rows: commits of the view, and changed rows in them, that the rows do not reflect.
        what: one sentence: what was done.
    """

    seconds: float
    rows: int
    what: str
    fault: str = ""
    lost_versions: int = 0
    lost_rows: int = 0


@dataclass(frozen=True)
class Scenario:
    """One kind of loss.

    Attributes:
        name: what people type.
        what: what is lost.
        target_seconds: the longest that the recovery may take.
        rehearse: loses it on a copy, and recovers. Any StrandlineError is a failed drill.
    """

    name: str
    what: str
    target_seconds: float
    rehearse: Callable[[Ground], Recovery]


class Unrehearsable(Exception):
    """The loss cannot be staged for this view: the reason. The drill has neither passed nor failed."""
