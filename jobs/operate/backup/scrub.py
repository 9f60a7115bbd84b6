"""The scrub of a backup: files that it holds already are read again, so that what a disk has lost is found in time.

    objects ──due──> read, checksum compared with that of the name ──> as written
                                            └─ damaged ──> copied again, where the lake still has it ──> mended
                                                       └─> named, with the backups that it is part of

A small backup is read whole each time. Of a large one every backup reads the files whose turn it is: each file has a
moment of its own in every `SCRUB_DAYS`, told by its name, so nothing has to be remembered of what was read when.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.operate.backup import manifest as manifests
from strandline.state_store.errors import BackupBroken
from strandline.state_store.files import replace
from strandline.state_store.layout import Lake
from strandline.state_store.paths import within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.operate.backup.image import Image
    from strandline.state_store.paths import LakePath

SCRUB_DAYS: Final = 30
"""Each file is read again within this time, if backups are made at least as often: storage arrays are scrubbed monthly,
since a second fault that meets an unnoticed first one is what loses data."""
_SMALL_BYTES: Final = 256 << 20
"""Read whole by each backup: a second or two."""
_SCRUB_MS: Final = SCRUB_DAYS * 86_400_000
_CHECKSUM_DIGITS: Final = 8


@dataclass(frozen=True)
class Scrub:
    """Files of a backup that are due to be read, by their names below its folder of objects, with their sizes."""

    due: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(self.due.values())


@dataclass(frozen=True)
class Scrubbed:
    """What a scrub found.

    Attributes:
        read: files.
        mended: those that were damaged, and were copied from the lake again.
        damaged: {file that is damaged or gone, and that the lake does not hold any more: the backups it is part of}.
    """

    read: int
    mended: tuple[str, ...]
    damaged: Mapping[str, tuple[int, ...]]


def plan_scrub(there: Mapping[str, int], last: int | None, now: int) -> Scrub:
    """The files whose turn it is.

    Args:
        there: {file below the folder of objects: its size}.
        last: when the backup before was made, in milliseconds since the epoch; None: there was none.
        now: likewise.
    """
    objects = {name: size for name, size in there.items() if _checksum(name) is not None}
    if last is None or sum(objects.values()) <= _SMALL_BYTES:
        return Scrub(objects)
    return Scrub({name: size for name, size in objects.items() if _turns(name, now) > _turns(name, last)})


def execute_scrub(scrub: Scrub, backup: LakePath, lake: Lake, image: Image) -> Scrubbed:
    """Read what is due, and mend what can be mended.

    Args:
        image: of the lake, whose files mend those of the backup.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: the backup cannot be read or written.
    """
    root = manifests.objects(backup).root
    broken = {name for name in scrub.due if not _is_whole(root / name, name)}
    mended = {name for name in broken if _mend(name, root, lake, image)}
    return Scrubbed(len(scrub.due), tuple(sorted(mended)), _parts_of(broken - mended, backup))


def _turns(name: str, moment: int) -> int:
    """How often it was the file's turn up to a moment."""
    phase = zlib.crc32(name.encode()) * _SCRUB_MS >> 32
    return (moment - phase) // _SCRUB_MS


def _checksum(name: str) -> str | None:
    """The checksum in the name of an object; None of another file, as one that a kill has left."""
    found = name.rpartition(".")[2]
    return found if len(found) == _CHECKSUM_DIGITS and not set(found) - set("0123456789abcdef") else None


def _is_whole(file: LakePath, name: str) -> bool:
    try:
        return f"{zlib.crc32(file.read_bytes()):08x}" == _checksum(name)
    except FileNotFoundError:
        return False


def _mend(name: str, root: LakePath, lake: Lake, image: Image) -> bool:
    """Copy a damaged file again; False where the lake has no such content any more."""
    objects = Lake(root)
    file = next((each for each in image.files if within(each.path(objects), root) == name.rpartition(".")[0]), None)
    if file is None:
        return False
    try:
        data = file.path(lake).read_bytes()
    except FileNotFoundError:
        return False
    if f"{zlib.crc32(data):08x}" != _checksum(name):
        return False
    replace(root / name, data)
    return True


def _parts_of(names: set[str], backup: LakePath) -> dict[str, tuple[int, ...]]:
    """The backups that name each file; a file that no manifest names any more is nobody's loss."""
    root = manifests.objects(backup).root
    found: dict[str, list[int]] = {}
    for number in manifests.numbers(backup) if names else ():
        try:
            named = {within(file.of_backup(backup), root) for file in manifests.read(backup, number).files}
        except BackupBroken:
            continue  # it cannot be restored, whatever its files are
        for name in names & named:
            found.setdefault(name, []).append(number)
    return {name: tuple(numbers) for name, numbers in sorted(found.items())}
