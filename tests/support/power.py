"""What a disk may hold after a power cut: a recorder of what was flushed, and the disks that fit each moment.

The rules are those of POSIX, without the kindness of a journal: content is on the disk when its file was flushed, a
name when its folder was. Of what was not flushed any part may be there: of the names any subset, of a file's content
nothing, a beginning or all.

The recorder wraps the calls by which names and flushes happen. What is in the folders it finds by looking before and
after each call, so files that a library writes from C++ are seen as well, as not flushed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

Names = dict[str, int]
"""{name: number of a file or folder} in one folder."""
Disk = tuple[tuple[str, bytes | None], ...]
"""Everything on a disk: path below the root, and the content of a file, or None for a folder."""

ROOT = 0
_CALLS = ("fsync", "link", "replace", "rename", "unlink", "remove", "mkdir", "rmdir")


@dataclass(frozen=True)
class Moment:
    """A moment at which the power may go.

    Attributes:
        names: {folder: its names} as processes see them.
        flushed_names: the same as they are surely on the disk.
        content: {file: content} as processes see it.
        flushed: {file: content} as it is surely on the disk.
        told: how many reports had been given.
    """

    names: dict[int, Names]
    flushed_names: dict[int, Names]
    content: dict[int, bytes]
    flushed: dict[int, bytes]
    told: int

    def pending(self) -> list[tuple[int, str]]:
        """The names that are not on the disk as processes see them: (folder, name)."""
        found = []
        for folder in self.names.keys() | self.flushed_names.keys():
            now, then = self.names.get(folder, {}), self.flushed_names.get(folder, {})
            found += [(folder, name) for name in now.keys() | then.keys() if now.get(name) != then.get(name)]
        return sorted(found)

    def disk(self, arrived: frozenset[tuple[int, str]], part: float) -> Disk:
        """The disk on which these of the pending names have arrived, and this part of what was not flushed."""
        return tuple(sorted(self._below(ROOT, "", arrived, part)))

    def _below(
        self, folder: int, path: str, arrived: frozenset[tuple[int, str]], part: float
    ) -> Iterator[tuple[str, bytes | None]]:
        now, then = self.names.get(folder, {}), self.flushed_names.get(folder, {})
        for name in now.keys() | then.keys():
            number = (now if (folder, name) in arrived else then).get(name)
            if number is None:
                continue
            if number in self.content or number in self.flushed:
                yield f"{path}{name}", self._surviving(number, part)
            else:
                yield f"{path}{name}", None
                yield from self._below(number, f"{path}{name}/", arrived, part)

    def _surviving(self, file: int, part: float) -> bytes:
        if file in self.flushed:
            return self.flushed[file]
        return self.content[file][: int(len(self.content[file]) * part)]


@dataclass
class Recorder:
    """The history of one folder, and what of it is surely on the disk at each moment."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _next: int = 1
    _flushed_names: dict[int, Names] = field(default_factory=dict)
    _flushed: dict[int, bytes] = field(default_factory=dict)

    def as_flushed(self) -> None:
        """Take what is there now as it is on the disk."""
        self._look()
        moment = self.moments.pop()
        self._flushed_names = {folder: dict(names) for folder, names in moment.names.items()}
        self._flushed = dict(moment.content)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the block does below the root. Not for two threads at once."""
        calls = {name: getattr(os, name) for name in _CALLS}
        self._look()
        for name, call in calls.items():
            setattr(os, name, self._wrapped(name, call))
        try:
            yield
        finally:
            for name, call in calls.items():
                setattr(os, name, call)
            self._look()

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            self._look()
            result = call(*args, **options)
            self._look(os.fstat(args[0]).st_ino if name == "fsync" else None)
            return result

        return wrapped

    def _look(self, flushed: int | None = None) -> None:
        """Note the present state; `flushed` is the inode that was flushed just now."""
        names: dict[int, Names] = {}
        content: dict[int, bytes] = {}
        numbers = {self.root.stat().st_ino: ROOT}
        self._read(self.root, ROOT, names, content, numbers)
        # The number of an inode that has gone is given to another file next.
        self._numbers = numbers
        number = numbers.get(flushed) if flushed is not None else None
        if number in content:
            self._flushed[number] = content[number]
        elif number is not None:
            self._flushed_names[number] = dict(names[number])
        here = {folder: dict(entries) for folder, entries in self._flushed_names.items()}
        self.moments.append(Moment(names, here, content, dict(self._flushed), len(self.told)))

    def _read(
        self, folder: Path, number: int, names: dict[int, Names], content: dict[int, bytes], numbers: dict[int, int]
    ) -> None:
        entries = names.setdefault(number, {})
        with os.scandir(folder) as scan:
            found = sorted(scan, key=lambda entry: entry.name)
        for entry in found:
            inode = entry.inode()
            if inode not in numbers:
                numbers[inode] = self._numbers.get(inode) or self._new()
            entries[entry.name] = numbers[inode]
            if entry.is_dir():
                self._read(Path(entry.path), numbers[inode], names, content, numbers)
            else:
                content[numbers[inode]] = Path(entry.path).read_bytes()

    def _new(self) -> int:
        self._next += 1
        return self._next


def disks(moment: Moment, seed: random.Random, most: int) -> Iterator[Disk]:
    """Disks that fit a moment: the extremes, each pending name alone and missing, then any subsets, up to `most`."""
    pending = moment.pending()
    every = frozenset(pending)
    subsets = [frozenset(), every, *(frozenset([one]) for one in pending), *(every - {one} for one in pending)]
    if len(pending) <= 4:
        subsets += [frozenset(some) for size in range(2, len(pending)) for some in combinations(pending, size)]
    while len(subsets) < most and len(pending) > 4:
        subsets.append(frozenset(one for one in pending if seed.random() < 0.5))
    for subset in subsets:
        for part in (0.0, 0.5, 1.0):
            yield moment.disk(subset, part)


def lay_out(disk: Disk, root: Path) -> None:
    """Make the disk as a folder; parents sort before what is in them."""
    root.mkdir()
    for name, content in disk:
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
