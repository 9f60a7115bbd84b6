"""The approval of a refresh: a table with blocking expectations is validated before anything is computed from it.

It stays as fresh as it was; what reads it waits at the version that was approved last, and goes on by itself once a
later one holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.expect.approvals import asked_of, read_approval, write_approval
from strandline.jobs.expect.validate import validate
from strandline.jobs.model.errors import ExpectationBroken
from strandline.state_store.delta.log import now_ms
from strandline.state_store.failpoints import failpoint
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from strandline.jobs.expect.approvals import Approval
    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.run.schedule import Maintained
    from strandline.state_store.layout import Lake


def approve(lake: Lake, heads: Heads, item: Maintained) -> ExpectationBroken | None:
    """Validate the head of an item's table, unless that was done before, and note what it came to.

    Returns:
        what is wrong with it; None when its expectations hold.

    Raises:
        CorruptState, VersionGone: the rows, or the approval, do not read back. Nothing is approved.
    """
    head = heads.find(item.target)
    if head is None or not item.blocking:
        return None
    asked = asked_of(item.blocking)
    known = read_approval(lake, item.target)
    if not known.covers(head, asked):
        _, verdicts = validate(lake.table(item.target), item.blocking, head.version)
        wrong = "; ".join(f"{each.check}: {each.what}" for each in verdicts if each.ok is not True)
        known = known.refusing(head, asked, wrong, now_ms()) if wrong else known.approving(head, asked)
        failpoint("before-approval")
        write_approval(lake, item.target, known)
    return _broken(item.target, known) if known.refused is not None else None


def _broken(table: str, approval: Approval) -> ExpectationBroken:
    assert approval.refused is not None
    stay = f"stays at its version {approval.approved.version}" if approval.approved is not None else "waits"
    return ExpectationBroken(
        sentence(
            "version {} of '{}' breaks {}; what reads it {}", approval.refused.version, Name(table), approval.why, stay
        ),
        where=Text(Name(table)),
        hint="correct what it is computed from, or the expectation; the next refresh looks again",
    )
