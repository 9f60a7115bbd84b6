"""Drill × fault, as data: what each drill says of each fault that is planted, or why it cannot see it.

That a drill stays green is a claim as much as that it turns red, so both stand here, and both are tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from strandline.jobs.operate.recovery.scenarios import SCENARIOS
from tests.unit.operate.recovery import plants
from tests.unit.operate.verify.lakes import MadeLake

DRILLS: Final = tuple(each.name for each in SCENARIOS)

_CHECKSUM: Final = r"store.corrupt.* of '\w+' fails its checksum"
_NOT_AS_WRITTEN: Final = r"store.corrupt.* of '\w+' is not as it was written"
_DIGEST: Final = r"rows of version \d have the digest .*, the record says"
_BACKED_UP: Final = r"store.backup_broken.*rows of '\w+' are not those that were backed up"

_NO_INPUTS: Final = "it plays the feed of the view, and reads no input"
_NO_OLD_INPUTS: Final = "the view stands at the heads of its inputs, so nothing of them is read again"
_NO_EVENTS: Final = "only the view goes back: its inputs stand, and no event is read again"
_GOES_BY_INPUTS: Final = "it goes on from the inputs as they are, and comes to the same rows again"
_WHOLE: Final = "the commit is whole: file, feed and record say the same"
_KEEPS: Final = "what is whole is backed up and restored as it is"
_FROM_EVENTS: Final = "it begins with the events that are in the log"
_LATER: Final = "a log that begins at a checkpoint is what a clean-up leaves"
_BEHIND: Final = "a view that has lost its newest version is one that is behind: the next refresh makes it again"
_TOPIC: Final = "events are read from their log; that the topic ends too early is what short-topic brings about itself"
_NO_BACKUP: Final = "it reads no backup"


@dataclass(frozen=True)
class Fault:
    """A fault, and what becomes of each drill under it.

    Attributes:
        plant: damages the lake.
        spoil: damages a backup of the lake, which the drills are given then.
        red: {drill: what its reason says, a regular expression}.
        green: {drill: why it cannot see the fault}. Each drill stands in one of the two.
    """

    name: str
    red: Mapping[str, str]
    green: Mapping[str, str] = field(default_factory=dict)
    plant: Callable[[MadeLake], None] | None = None
    spoil: Callable[[Path], None] | None = None


def _everywhere(words: str) -> dict[str, str]:
    return dict.fromkeys(DRILLS, words)


def _in(words: str, *drills: str) -> dict[str, str]:
    return dict.fromkeys(drills, words)


_NOT_THE_DIGEST = (
    _in("the feed folds to the digest", "changelog")
    | _in(_DIGEST, "recompute", "short-topic")
    | _in("store.replica_diverged", "local-state", "feed-gap")
    | _in("store.corrupt.*rows of 'owned' are not those that were committed", "killed-driver", "point-in-time")
    | _in(_BACKED_UP, "backup")
)
"""What the drills say of rows that are not those of the digest, whichever of the two was changed."""

FAULTS: Final = (
    Fault("skipped version", _everywhere("version 3 of 'owned' is not in its log"), plant=plants.skipped_version),
    Fault(
        "skipped version below a checkpoint",
        _everywhere("version 3 of 'owned' is not in its log"),
        plant=plants.skipped_below_a_checkpoint,
    ),
    Fault("first versions gone", {}, _everywhere(_LATER), plant=plants.first_versions_gone),
    Fault("newest version gone", {}, _everywhere(_BEHIND), plant=plants.newest_version_gone),
    Fault("corrupted commit", _everywhere(_CHECKSUM), plant=plants.corrupted_commit),
    Fault(
        "corrupted file",
        _everywhere(_CHECKSUM) | {"backup": _NOT_AS_WRITTEN},
        plant=plants.corrupted_file,
    ),
    Fault("lost file", _everywhere("store.version_gone.* of 'owned' is gone"), plant=plants.lost_file),
    Fault(
        "row in a file, its checksum mended",
        _NOT_THE_DIGEST,
        plant=plants.row_in_a_file,
    ),
    Fault("row of another tool", _everywhere("store.foreign_write"), plant=plants.row_of_another_tool),
    Fault(
        "row committed that is not of the SQL",
        _in("1 too many, as .*Eve", "recompute", "short-topic", "killed-driver", "point-in-time"),
        _in(_WHOLE, "changelog", "local-state", "feed-gap") | _in(_KEEPS, "backup"),
        plant=plants.row_committed,
    ),
    Fault(
        "record with another digest",
        _NOT_THE_DIGEST,
        plant=plants.other_digest,
    ),
    Fault(
        "skipped version of an input",
        _everywhere("version 3 of 'totals' is not in its log"),
        plant=plants.input_skipped_version,
    ),
    Fault(
        "newest version of an input gone",
        _everywhere("store.input_replaced.*'totals' ends at version 3"),
        plant=plants.input_went_back,
    ),
    Fault(
        "corrupted files of an input",
        _in(_CHECKSUM, "recompute", "short-topic", "point-in-time", "killed-driver") | _in(_NOT_AS_WRITTEN, "backup"),
        _in(_NO_INPUTS, "changelog", "feed-gap") | _in(_NO_OLD_INPUTS, "local-state"),
        plant=plants.input_corrupted_files,
    ),
    Fault(
        "row in a file of an input, its checksum mended",
        _in(f"'totals': the {_DIGEST}", "recompute", "short-topic")
        | _in("1 missing, as .*n=1000", "killed-driver", "point-in-time")
        | _in(_BACKED_UP, "backup"),
        _in(_NO_INPUTS, "changelog", "feed-gap") | _in(_NO_OLD_INPUTS, "local-state"),
        plant=plants.input_row_in_a_file,
    ),
    Fault(
        "row committed to an input that is not of its SQL",
        _in("'totals': the rows are not those of its SQL", "recompute", "short-topic"),
        _in(_NO_INPUTS, "changelog", "feed-gap")
        | _in(_GOES_BY_INPUTS, "local-state", "killed-driver", "point-in-time")
        | _in(_KEEPS, "backup"),
        plant=plants.input_row_committed,
    ),
    Fault(
        "corrupted file of events",
        _in(_CHECKSUM, "recompute", "short-topic") | _in(_NOT_AS_WRITTEN, "backup"),
        _in(_NO_INPUTS, "changelog", "feed-gap")
        | _in(_NO_OLD_INPUTS, "local-state")
        | _in(_NO_EVENTS, "killed-driver", "point-in-time"),
        plant=plants.event_corrupted,
    ),
    Fault(
        "events altered, the checksum mended",
        _in(f"'visits': the {_DIGEST}", "recompute", "short-topic") | _in(_BACKED_UP, "backup"),
        _in(_NO_INPUTS, "changelog", "feed-gap")
        | _in(_NO_OLD_INPUTS, "local-state")
        | _in(_NO_EVENTS, "killed-driver", "point-in-time"),
        plant=plants.event_altered,
    ),
    Fault(
        "event missing in the log",
        _in("offset 8 of partition 0 is neither in the log nor among the dead letters", "short-topic"),
        _in(_NO_INPUTS, "changelog", "feed-gap")
        | _in(_NO_OLD_INPUTS, "local-state")
        | _in(_NO_EVENTS, "killed-driver", "point-in-time")
        | _in(_FROM_EVENTS, "recompute")
        | _in(_KEEPS, "backup"),
        plant=plants.event_missing,
    ),
    Fault("topic without its tail", {}, _everywhere(_TOPIC), plant=plants.topic_without_its_tail),
    *(
        Fault(
            name,
            _in("store.backup_broken", "backup"),
            dict.fromkeys((each for each in DRILLS if each != "backup"), _NO_BACKUP),
            spoil=spoil,
        )
        for name, spoil in (
            ("backup without its last file", plants.backup_without_its_last_file),
            ("backup without its manifest", plants.backup_without_its_manifest),
            ("backup without a file", plants.backup_without_a_file),
            ("backup with a flipped bit", plants.backup_with_a_flipped_bit),
        )
    ),
)
