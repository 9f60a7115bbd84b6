"""The manifest of a catalog, which says what definitions there are beside their files; and the lock for changing it.

    <lake>/definitions.json     {"files": {"by_shop": {"states": ["1f2e3d4c"], "about": {…}}, "functions/F": {…}}}

A folder of files does not tell that one of them is gone, nor that one came from another lake. So the manifest has of
each file its checksum, and what is needed to say whose it was. It is written before a file changes, with the
state before and after (empty: there is no file), and after it with that alone: at any moment the file is in one of its
states. Whoever changes it holds the catalog's lock; a reader looks at it before and after the files.

A lake of an older version has none until its first change. One that does not read back is as none, and made anew.

It has a line for each definition, and each definition changes it: so what was read or written last is remembered, and
of an entry its text.

The lock is held by one at a time of all who change the catalog. Reading takes none, since files appear whole. On a disk
it is a lock of the kernel, on an object store a lease. Either way a later one waits for the one before. A lease ends
with its time, so whoever holds it asks before each write whether it is still held.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from strandline.state_store.errors import WriterBusy
from strandline.state_store.files import Remembered, make_folder, replace
from strandline.state_store.layout import LakeLayout, name_of, safe_name
from strandline.state_store.lock import LEASE_SECONDS, WriterLease, lease
from strandline.state_store.paths import LakePath, Location, files_in
from strandline.state_store.stored_state import check_format, members_in, of_members, sealed_text

_PATIENCE_SECONDS: Final = 4 * LEASE_SECONDS
"""A change takes a second or two on an object store, and a killed one leaves its lease for `LEASE_SECONDS`."""
_PAUSE_SECONDS: Final = 0.1
"""Between two tries, while others are faster."""


@contextmanager
def locked(directory: LakePath) -> Iterator[Callable[[], None]]:
    """Hold the lock of the catalog in `directory`, which is made when it is not there.

    Returns:
        what raises LockLost when the lock is no longer held, which only happens on an object store.

    Raises:
        WriterBusy: on an object store, others have held it for minutes.
    """
    if isinstance(directory, Location):
        with _leased(directory / "catalog.lease") as held:
            yield held.check
        return
    _ensure(directory)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _held


_FLUSHED: Final = Remembered[tuple[int, int]]()
"""The folders that this process has flushed the names of, each with its device and inode."""


def _ensure(directory: Path) -> None:
    """Make the folder unless it is there, and flush its name once: a script changes the catalog with each statement."""
    with suppress(FileNotFoundError):
        about = os.stat(directory)
        if _FLUSHED.find(directory) == (about.st_dev, about.st_ino):
            return
    make_folder(directory)
    about = os.stat(directory)
    _FLUSHED.note(directory, (about.st_dev, about.st_ino))


@contextmanager
def _leased(location: Location) -> Iterator[WriterLease]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                held = stack.enter_context(lease(location, "a change of the catalog"))
                break
            except WriterBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
        yield held


def _held() -> None:
    """A lock of the kernel is held until it is given back."""


_FORMAT: Final = 1
"""What a manifest has that says none; a later one has it as its member `format`."""
_FUNCTIONS: Final = "functions"
_NO_FILE: Final = ""
"""The state of a file that is not there."""


@dataclass(frozen=True)
class KnownFile:
    """What the manifest has of one file.

    Attributes:
        states: that it may be in.
        about: the pipeline, inputs, functions, fingerprint and other name of its definition.
    """

    states: tuple[str, ...]
    about: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """The entry as JSON, its members in the order of their names."""
        return json.dumps({"about": dict(self.about), "states": list(self.states)}, sort_keys=True)


Manifest = Mapping[str, KnownFile]
"""What is known of each file, by the key of its definition."""

_LATEST: Final[dict[bytes, Manifest]] = {}
"""The manifest that this process has read or written last, by its bytes. Nobody changes it."""


def key_of(name: str, *, function: bool = False) -> str:
    """The key of a definition, or of a function that a user wrote."""
    return f"{_FUNCTIONS}/{safe_name(name)}" if function else safe_name(name)


def read(lake: LakeLayout) -> Manifest | None:
    """The manifest of a lake; None where there is none that reads back.

    Raises:
        FormatNewer: a later version wrote it.
    """
    try:
        data = lake.definitions.read_bytes()
        if (latest := _LATEST.get(data)) is not None:
            return latest
        members = members_in(data)
        check_format("the manifest of the catalog", members.get("format", _FORMAT), _FORMAT, str(lake.definitions))
        files = members["files"]
        found = {key: KnownFile(tuple(each["states"]), each.get("about", {})) for key, each in files.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
    _remember(data, found)
    return found


def path_of(key: str, lake: LakeLayout) -> LakePath:
    """The file of a key."""
    return lake.catalog / f"{key}.json"


def lost(manifest: Manifest, found: Mapping[str, bytes]) -> Iterator[tuple[str, bool, KnownFile]]:
    """The names whose files must be there and are not, with whether they are functions'.

    Args:
        found: {key: the bytes of its file}.
    """
    for key, known in manifest.items():
        if key not in found and _NO_FILE not in known.states:
            folder, _, name = key.rpartition("/")
            yield name_of(name), folder == _FUNCTIONS, known


def fault(manifest: Manifest, key: str, data: bytes) -> str | None:
    """Why a file is not the one that was registered; None: it is."""
    known = manifest.get(key)
    if known is None:
        return "its catalog file was not registered in this lake"
    if _state(data) not in known.states:
        return "its catalog file is not the one that was registered: it is an older one, or another lake's"
    return None


@contextmanager
def changing(lake: LakeLayout, key: str, data: bytes | None, about: Mapping[str, Any]) -> Iterator[None]:
    """Note a change of one file around the body, which makes it; the catalog's lock must be held.

    Args:
        data: what the file is going to hold; None: it is removed.
        about: as of `KnownFile`.
    """
    before = read(lake)
    files = dict(before) if before is not None else _as_they_are(lake)
    after = _NO_FILE if data is None else _state(data)
    former = files[key].states if key in files else (_NO_FILE,)
    files[key] = KnownFile(tuple(dict.fromkeys((*former, after))), about)
    _write(files, lake)
    yield
    if data is None:
        del files[key]
    else:
        files[key] = KnownFile((after,), about)
    _write(files, lake, for_good=False)  # the one before knows the file as it is now, too


def forget(lake: LakeLayout, keys: tuple[str, ...]) -> None:
    """Forget files that are removed; the catalog's lock must be held."""
    files = read(lake)
    if files is not None and not files.keys().isdisjoint(keys):
        _write({key: known for key, known in files.items() if key not in keys}, lake)


def _as_they_are(lake: LakeLayout) -> dict[str, KnownFile]:
    """The files of a lake that has no manifest yet."""
    found: dict[str, KnownFile] = {}
    for folder, prefix in ((lake.catalog, ""), (lake.catalog / _FUNCTIONS, f"{_FUNCTIONS}/")):
        for path in files_in(folder, ".json"):
            found[f"{prefix}{path.stem}"] = KnownFile((_state(path.read_bytes()),), {})
    return found


@lru_cache(maxsize=4096)  # the files of a catalog are read again and again, and hardly ever are others
def _state(data: bytes) -> str:
    """The checksum of a file's members: blanks, line ends and the format do not count."""
    try:
        members = json.loads(data)
        content = {name: each for name, each in members.items() if name not in ("format", "crc")}
        return f"{of_members(content, ascii_only=False):08x}"
    except (ValueError, AttributeError, RecursionError):
        return f"{zlib.crc32(data):08x}"


def _write(files: Manifest, lake: LakeLayout, *, for_good: bool = True) -> None:
    entries = ", ".join(f"{json.dumps(key)}: {each.text}" for key, each in sorted(files.items()))
    data = sealed_text(f'{{"files": {{{entries}}}}}')
    replace(lake.definitions, data, for_good=for_good)
    _remember(data, dict(files))


def _remember(data: bytes, files: Manifest) -> None:
    _LATEST.clear()
    _LATEST[data] = files
