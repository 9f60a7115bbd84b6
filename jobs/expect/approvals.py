"""The verdict of a quality check, as data, and what blocking ones decide: which version of a table may be read.

Approvals: the version of a table up to which its blocking expectations hold. Who computes from it reads no further.

    commit ──> validated ──> holds: approved up to this commit        breaks: refused, and readers stay where they are

    <lake>/approvals/<table>.json

A table with blocking expectations and no approval is not read at all: a kill between a commit and its validation, a
commit by another way and an expectation that is new all come to the same, and the next refresh validates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.definitions import Severity
from strandline.state_store.commits import Head, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import make_folder, replace
from strandline.state_store.stored_state import members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.definitions import Expectation
    from strandline.state_store.layout import LakeLayout


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


_FORMAT: Final = 1


@dataclass(frozen=True)
class Approval:
    """How far a table is validated.

    Attributes:
        asked: the expectations that were validated, as `asked_of` has them.
        approved: the newest commit at which all of them held; None when none did yet.
        refused: a later commit at which one of them did not; None when there is none.
        why: what was wrong with that one.
        since: milliseconds since the epoch, when the first commit after the approved one was refused.
    """

    asked: str
    approved: TableVersion | None = None
    refused: TableVersion | None = None
    why: str = ""
    since: int | None = None

    def covers(self, head: Head, asked: str) -> bool:
        """True if these expectations were validated at that commit already."""
        last = self.refused or self.approved
        return self.asked == asked and last is not None and last.same(head.at)

    def approving(self, head: Head, asked: str) -> Approval:
        """All expectations hold at that commit."""
        return Approval(asked, approved=head.at)

    def refusing(self, head: Head, asked: str, why: str, now_ms: int) -> Approval:
        """One does not; what was approved before stays."""
        return Approval(asked, self.approved, head.at, why, self.since or now_ms)


_WITHOUT_CHECKSUM: Final = frozenset(("format", *(each.name for each in fields(Approval))))
"""Of a file that an earlier version wrote. One member more may be the checksum, under a name that damage gave it."""


def asked_of(expectations: Sequence[Expectation]) -> str:
    """Expectations as one short text that differs when they do."""
    said = json.dumps([asdict(each) for each in expectations], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def read_approval(lake: LakeLayout, table: str) -> Approval:
    """The approval of a table; an empty one when there is none.

    Raises:
        CorruptState: it does not read back.
    """
    file = lake.approval(table)
    try:
        data = file.read_bytes()
        if json.loads(data).keys() == _WITHOUT_CHECKSUM:
            return Approval("")  # of an earlier version: the next refresh validates
        body = members_in(data)
        if body.pop("format") != _FORMAT:
            raise ValueError
        approved, refused = _commit(body.pop("approved")), _commit(body.pop("refused"))
        return Approval(approved=approved, refused=refused, **body)
    except FileNotFoundError:
        return Approval("")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "remove it: the next run validates the table again"
        raise CorruptState("an approval does not read back", where=str(file), hint=hint) from error


def write_approval(lake: LakeLayout, table: str, approval: Approval) -> None:
    """Write the approval of a table.

    Raises:
        DiskFailed, StorageDenied: it could not be written.
    """
    file = lake.approval(table)
    make_folder(file.parent)
    replace(file, sealed_members({"format": _FORMAT, **asdict(approval)}))


def approved_head(lake: LakeLayout, table: str, head: Head | None) -> Head | None:
    """The head of a table as far as it is approved; None when no commit of it is.

    Args:
        head: the newest commit.

    Raises:
        VersionGone: the log no longer reaches back to it.
        CorruptState: the approval, or the commit's record, does not read back.
    """
    approved = read_approval(lake, table).approved
    if head is None or approved is None or approved.version > head.version:
        return None
    same = approved.version == head.version
    found = head if same else Head(approved.version, reader.record_at(lake.table(table), approved.version))
    return found if approved.same(found.at) else None


def _commit(body: dict[str, Any] | None) -> TableVersion | None:
    return None if body is None else TableVersion(**body)
