"""The history of drills in the lake: one small file for each run of some drills, to be plotted.

    <lake>/drills/<milliseconds, 15 digits>-<random>.json      {"crc": …, "format": 2, "results": [...]}

A file is written once and never changed, so runs beside each other, on any storage, lose nothing of each other.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.forecast import note_measured
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import make_folder, replace
from strandline.state_store.paths import files_in
from strandline.state_store.stored_state import members_since, sealed_members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.layout import LakeLayout

_FORMAT: Final = 2
"""Since it they have a checksum."""


@dataclass(frozen=True)
class DrillResult:
    """What a drill came to.

    Attributes:
        at: when it began, milliseconds since the epoch.
        rto_seconds: from the loss to rows that are right again; None when it did not come so far.
        rpo_versions, rpo_rows: commits of the view, and changed rows in them, that were lost for good.
        rows: of the view afterwards.
        digest_equal: the rows are those that they must be; doubles that were added up anew are equal at 1e-9.
        passed: None when the loss could not be staged.
        why: what was done, or what is wrong.
        seconds: of the whole drill, with its copy; None in the history, where it is kept to forecast the next one
            (`jobs.model.forecast`).
    """

    drill: str
    view: str
    at: int
    rto_seconds: float | None
    rpo_versions: int
    rpo_rows: int
    rows: int
    digest_equal: bool | None
    target_seconds: float
    passed: bool | None
    why: str
    seconds: float | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


def record(lake: LakeLayout, results: Sequence[DrillResult]) -> None:
    """Add the results of one run to the history.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: it could not be written.
    """
    if not results:
        return
    make_folder(lake.drills)
    name = f"{min(result.at for result in results):015d}-{secrets.token_hex(4)}.json"
    kept = [{name: value for name, value in result.as_json().items() if name != "seconds"} for result in results]
    replace(lake.drills / name, sealed_members({"format": _FORMAT, "results": kept}))
    for result in results:
        if result.passed and result.seconds is not None:
            note_measured(lake, result.drill, result.view, result.seconds)


def history(lake: LakeLayout) -> list[DrillResult]:
    """All results, the oldest first.

    Raises:
        CorruptState: a file of the history does not read back.
    """
    found: list[DrillResult] = []
    for file in files_in(lake.drills, ".json"):
        try:
            found += [DrillResult(**each) for each in members_since(file.read_bytes(), _FORMAT)["results"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                "a file of the drills' history does not read back", where=str(file), hint="remove it"
            ) from error
    return sorted(found, key=lambda result: result.at)
