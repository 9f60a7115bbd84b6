"""The manifest of a backup: every file of the lake with its checksum, and what each table must be.

    <backup>/objects/…/<file>.<crc>       the files, each copied once, whichever backups name it
    <backup>/manifests/<number>.json      one backup: written when all of its files are there
    <backup>/latest.json                  names the newest one: written last

A backup that `latest.json` does not name does not exist. One whose files are not all there is refused before anything
is restored; so is one without its last file, which an older manifest would otherwise hide.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.operate.backup.image import ImageFile
from strandline.state_store.checksum import of_members
from strandline.state_store.errors import BackupBroken
from strandline.state_store.files import make_folder, replace
from strandline.state_store.layout import Lake
from strandline.state_store.paths import is_folder, sizes_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.paths import LakePath

_FORMAT: Final = 1
_LATEST: Final = "latest.json"


@dataclass(frozen=True)
class Stored:
    """A file of a backup; `checksum` is its CRC-32, eight hex digits. See `ImageFile` for the rest."""

    table: str
    name: str
    size: int
    checksum: str

    @property
    def key(self) -> tuple[str, str]:
        """What names the file in the lake."""
        return self.table, self.name

    def of_lake(self, lake: Lake) -> LakePath:
        """The file in a lake."""
        return ImageFile(self.table, self.name, self.size).path(lake)

    def of_backup(self, backup: LakePath) -> LakePath:
        """The file in the backup. With its checksum in the name, another content never takes its place."""
        path = self.of_lake(objects(backup))
        return path.with_name(f"{path.name}.{self.checksum}")


@dataclass(frozen=True)
class TableState:
    """What a table is in a backup: Delta's identity, its version, and the digest of its rows."""

    id: str
    version: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """One backup; `made` in milliseconds since the epoch, `files` in the order in which they are restored."""

    number: int
    made: int
    lake: str
    tables: Mapping[str, TableState]
    files: tuple[Stored, ...]


def objects(backup: LakePath) -> Lake:
    """The folder of a backup's files, laid out as a lake."""
    return Lake(backup / "objects")


def read_latest(backup: LakePath) -> Manifest | None:
    """The newest backup; None when none was ever finished here.

    Raises:
        BackupBroken: there is one, and what names it, or its manifest, is missing or broken.
    """
    try:
        number = int(_read(backup / _LATEST)["number"])
    except FileNotFoundError:
        if is_folder(backup / "manifests"):
            raise BackupBroken(
                f"the backup has no '{_LATEST}': it was never finished, or its last file is lost",
                where=str(backup),
                hint="back up again: what is there already is not copied twice",
            ) from None
        return None
    return read(backup, number)


def read(backup: LakePath, number: int) -> Manifest:
    """One backup by its number. Raises BackupBroken."""
    file = _file(backup, number)
    try:
        body = _read(file)
    except FileNotFoundError:
        raise BackupBroken(f"the manifest of backup {number} is missing", where=str(file), hint=_kept(backup)) from None
    tables = {name: TableState(**said) for name, said in body["tables"].items()}
    return Manifest(number, body["made"], body["lake"], tables, tuple(Stored(*each) for each in body["files"]))


def numbers(backup: LakePath) -> list[int]:
    """The numbers of the backups that have a manifest, the oldest first."""
    return sorted(int(name[:6]) for name in sizes_below(backup / "manifests") if name[:6].isdecimal())


def _kept(backup: LakePath) -> str | None:
    """Which backups can be asked for instead."""
    found = numbers(backup)
    return f"there are the numbers {', '.join(map(str, found))}" if found else None


def write(backup: LakePath, manifest: Manifest) -> None:
    """Write a manifest whose files are all there, and name it the newest."""
    body = {
        "number": manifest.number,
        "made": manifest.made,
        "lake": manifest.lake,
        "tables": {name: asdict(state) for name, state in manifest.tables.items()},
        "files": [[each.table, each.name, each.size, each.checksum] for each in manifest.files],
    }
    make_folder(_file(backup, manifest.number).parent)
    _write(_file(backup, manifest.number), body)
    _write(backup / _LATEST, {"number": manifest.number})


def _file(backup: LakePath, number: int) -> LakePath:
    return backup / "manifests" / f"{number:06d}.json"


def _write(file: LakePath, body: Mapping[str, Any]) -> None:
    said = {"format": _FORMAT, **body}
    replace(file, json.dumps({**said, "crc": of_members(said, ascii_only=True)}).encode())


def _read(file: LakePath) -> dict[str, Any]:
    data = file.read_bytes()
    try:
        body = dict(json.loads(data))
        crc = body.pop("crc")
        known = body.pop("format") == _FORMAT
        intact = crc == of_members({"format": _FORMAT, **body}, ascii_only=True)
    except (ValueError, KeyError, TypeError) as error:
        raise BackupBroken("a manifest of a backup does not read back", where=str(file)) from error
    if not known or not intact:
        what = "is not as it was written" if known else "was written by another version of Strandline"
        raise BackupBroken(f"a manifest of a backup {what}", where=str(file))
    return body
