"""The report on one table: its checks are run here, and whatever a broken file makes of them becomes a finding."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.jobs.operate.verify.findings import Check, Outcome, failed, skipped
from strandline.state_store.errors import StoreError, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.operate.verify.subjects import Subject

_log = logging.getLogger("strandline.verify")


@dataclass
class Report:
    """The checks of one table so far."""

    subject: Subject
    checks: list[Check] = field(default_factory=list)

    def run(self, name: str, check: Callable[[], Outcome], prevented: str | None = None) -> bool | None:
        """Make a check and note what it found: whether all is well, None if it could not be made.

        Args:
            prevented: why the check cannot be made.
        """
        outcome = skipped(prevented) if prevented is not None else _outcome(check)
        self.add(name, outcome)
        return outcome.ok

    def add(self, name: str, outcome: Outcome) -> None:
        """Note what a check found; a failed one gets the table's place and way out where it has none of its own."""
        where, hint = outcome.where, outcome.hint
        if outcome.ok is False:
            where, hint = where or str(self.subject.path), hint or self.subject.hint
        self.checks.append(Check(self.subject.table, name, outcome.ok, outcome.what, where, hint))


def _outcome(check: Callable[[], Outcome]) -> Outcome:
    try:
        return check()
    except StoreError as error:
        # Its hint speaks to whoever reads the table; what mends it is the table's own way out.
        return failed(error.message, error.where)
    except StrandlineError as error:
        return failed(error.message, error.where, error.hint)
    except Exception as error:  # a broken file can make any library fail in any way, and the next table still counts
        _log.debug("a check failed without a type", exc_info=True)
        return failed(f"it cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
