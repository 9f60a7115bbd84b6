"""The image of a lake: the files that it consists of at one moment, while its pipelines go on.

    definitions ──> heads ──> inputs at least at the versions that vectors name ──> dead letters ──> topics

Files are immutable and named once, so whoever has the list has the moment. What is listed later may be newer and never
older than what it must fit: a table's inputs, the dead letters of a log, the topic of both.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.operate.verify.subjects import subjects
from strandline.jobs.operate.verify.tables import oldest_base
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import named_since
from strandline.state_store.delta.data_files import stated_checksum
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import BackupBroken, CorruptState, InputReplaced, VersionGone
from strandline.state_store.files import make_folder, replace
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import is_folder, sizes_below, within
from strandline.state_store.stored_state import check_format, of_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from strandline.jobs.operate.verify.subjects import Subject
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.paths import LakePath


# The manifest of a backup: every file of the lake with its checksum, and what each table must be.
#
#     <backup>/objects/…/<file>.<crc>       the files, each copied once, whichever backups name it
#     <backup>/manifests/<number>.json      one backup: written when all of its files are there
#     <backup>/latest.json                  names the newest one: written last
#
# A backup that `latest.json` does not name does not exist. One whose files are not all there is refused before
# anything is restored; so is one without its last file, which an older manifest would otherwise hide.

_FORMAT: Final = 1
_LATEST: Final = "latest.json"


@dataclass(frozen=True)
class BackupFile:
    """A file of a backup; `checksum` is its CRC-32, eight hex digits. See `ImageFile` for the rest."""

    table: str
    name: str
    size: int
    checksum: str

    @property
    def key(self) -> tuple[str, str]:
        """What names the file in the lake."""
        return self.table, self.name

    def of_lake(self, lake: LakeLayout) -> LakePath:
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
    files: tuple[BackupFile, ...]


def objects(backup: LakePath) -> LakeLayout:
    """The folder of a backup's files, laid out as a lake."""
    return LakeLayout(backup / "objects")


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
    return Manifest(number, body["made"], body["lake"], tables, tuple(BackupFile(*each) for each in body["files"]))


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
        check_format("a manifest of a backup", body.pop("format"), _FORMAT, str(file))
        intact = crc == of_members({"format": _FORMAT, **body}, ascii_only=True)
    except (ValueError, KeyError, TypeError) as error:
        raise BackupBroken("a manifest of a backup does not read back", where=str(file)) from error
    if not intact:
        raise BackupBroken("a manifest of a backup is not as it was written", where=str(file))
    return body


_LOG = "_delta_log/"


@dataclass(frozen=True)
class ImageFile:
    """A file of a lake.

    Attributes:
        table: the table that it belongs to; empty for a file of the lake itself.
        name: relative to the table, or the lake.
        size: bytes.
        checksum: the CRC-32 that the log states of it, eight hex digits; None: it states none.
        lasting: it never has another content under its name, as long as the table is the same.
    """

    table: str
    name: str
    size: int
    checksum: str | None = None
    lasting: bool = False

    def path(self, lake: LakeLayout) -> LakePath:
        """The file in a lake, on a disk or an object store."""
        return (lake.table(self.table) if self.table else lake.root) / self.name


@dataclass(frozen=True)
class Image:
    """A lake at one moment.

    Attributes:
        heads: {table: its head}.
        files: those of tables first, definitions last: without them nobody takes a copy for a lake.
        definitions: as of `definitions_of`, when the image was begun.
    """

    heads: Mapping[str, Head]
    files: tuple[ImageFile, ...]
    definitions: Mapping[str, str]


def lake_image(lake: LakeLayout, only: Collection[str] | None = None) -> Image:
    """The image of a lake as it is now.

    Args:
        only: of these tables; default: all that belong to definitions.

    Raises:
        CorruptState, ForeignWrite, VersionGone: a table is broken: verify it.
        InputReplaced: a table ends before the version that another one was computed from.
    """
    # Read first: a definition that comes later is not in the image, nor are its tables.
    definitions = definitions_of(lake)
    about = [file for folder in ("reached", "registry", "approvals", "catalog") for file in _below(lake.root, folder)]
    about[:0] = _topics_kind(lake)
    found = [each for each in subjects((), Catalog(lake), lake) if each.definition is not None]
    chosen = [each for each in found if only is None or each.table in only]
    heads = _heads(chosen)
    files = [file for each in chosen if each.table in heads for file in _of_table(each, heads[each.table].version)]
    sources = (file for folder in ("topics", "folders") for file in _below(lake.root, folder))
    return Image(heads, (*files, *sources, *about), definitions)


def definitions_of(lake: LakeLayout) -> dict[str, str]:
    """{file of a definition, or of the intent to replace one, relative to the lake: the CRC-32 of its content}."""
    found = {}
    for file in _below(lake.root, "catalog"):
        if file.name.endswith(".json"):
            with suppress(FileNotFoundError):  # dropped, or at its end, since it was listed
                found[file.name] = f"{zlib.crc32(file.path(lake).read_bytes()):08x}"
    return found


def check_definitions(image: Image, lake: LakeLayout) -> None:
    """Check, once the files were copied, that no definition has changed since the image was begun.

    One that was replaced is not that of the rows in the image. Others may have been added.

    Raises:
        VersionGone: one has changed.
    """
    now = definitions_of(lake)
    ours = {**dict.fromkeys((name for name in now if name.startswith("catalog/replacing/")), ""), **image.definitions}
    changed = next((name for name, found in ours.items() if now.get(name) != found), None)
    if changed is not None:
        raise VersionGone(
            f"'{changed}' was changed while the lake was copied", where=str(lake.root / changed), hint="copy it again"
        )


def _below(root: LakePath, folder: str) -> Iterator[ImageFile]:
    return (ImageFile("", f"{folder}/{name}", size) for name, size in sorted(sizes_below(root / folder).items()))


def _topics_kind(lake: LakeLayout) -> Iterator[ImageFile]:
    """The file that says whether the topics are Kafka's: without it a missing setting would mean the local log."""
    with suppress(FileNotFoundError):
        yield ImageFile("", lake.topics_kind.name, len(lake.topics_kind.read_bytes()))


def _heads(chosen: Sequence[Subject]) -> dict[str, Head]:
    """The heads of the tables that are there, each at least at the version that the others name."""
    by_name = {each.table: each for each in chosen}
    found = {each.table: head for each in chosen if (head := reader.head(each.path)) is not None}
    while late := _named_later(by_name, found):
        found |= {name: _head_from(by_name[name], at) for name, at in late.items()}
    letters = (each for each in chosen if each.role == "dead letters")
    return found | {each.table: head for each in letters if (head := reader.head(each.path)) is not None}


def _named_later(by_name: Mapping[str, Subject], heads: Mapping[str, Head]) -> dict[str, int]:
    """{table whose head was read before a commit that another's vector names: the version of that commit}."""
    late: dict[str, int] = {}
    for reader_of, head in heads.items():
        for entry, at in head.record.vector.items():
            name = by_name[reader_of].input_of(entry)
            if name in by_name and not _reaches(heads.get(name), at):
                late[name] = max(at.version, late.get(name, 0))
    return late


def _reaches(head: Head | None, at: TableVersion) -> bool:
    """False if the head is older than the commit. Of a table that was made anew since, nothing is older or newer."""
    if head is None:
        return False
    anew = bool(at.table and head.at.table and at.table != head.at.table)
    return anew or head.version >= at.version


def _head_from(subject: Subject, version: int) -> Head:
    """The head of a table that has reached a version: another table's vector names it.

    Raises:
        InputReplaced: it has not. To wait for it would be to wait for ever.
    """
    head = reader.head(subject.path)
    if head is None or head.version < version:
        ends = "is not there" if head is None else f"ends at version {head.version}"
        raise InputReplaced(
            sentence("'{}' {}, and a table was computed from its version {}", Name(subject.table), ends, version),
            where=str(subject.path),
            hint="type: strandline verify",
        )
    return head


def _of_table(subject: Subject, version: int) -> Iterator[ImageFile]:
    """The log of a table up to a version, and the files that it names and that are there.

    Raises:
        VersionGone: a file of that version is gone.
    """
    path, sizes = subject.path, sizes_below(subject.path)
    base = oldest_base(path, version)
    if base is None:
        raise CorruptState(
            sentence("the log of '{}' reaches back to no version that is whole", Name(subject.table)), where=str(path)
        )
    stated = _stated(path, max(base, 0), version)
    live = {unquote(name) for name in read_snapshot(path, version).files}
    for name in sorted(named_since(path, max(base, 0), version)):
        if name in sizes:
            yield ImageFile(subject.table, name, sizes[name], stated.get(name), lasting=True)
        elif name in live:
            raise VersionGone(
                sentence("file '{}' of '{}' is gone", name, Name(subject.table)),
                where=str(path),
                hint=subject.hint,
            )
    entries = [*(log.commit_file(path, each) for each in log.versions(path) if each <= version)]
    entries += [log.checkpoint_file(path, each) for each in log.checkpoints(path, upto=version)]
    for file in entries:
        name = within(file, path)
        if name in sizes:
            yield ImageFile(subject.table, name, sizes[name])


def _stated(path: LakePath, first: int, newest: int) -> dict[str, str | None]:
    """{data file, or file that lists changes: the checksum that the log states}."""
    bodies: list[Mapping[str, Any]] = [*read_snapshot(path, first).files.values()]
    for actions in log.read_entries(path, first, newest):
        bodies += [action[kind] for action in actions for kind in ("add", "cdc") if kind in action]
    return {unquote(body["path"]): stated_checksum(body) for body in bodies}
