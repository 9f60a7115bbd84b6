"""Files that are never written twice, read once: a log's entries, deletion vectors.

    read(file) ──stat──> as it was when it was read?  ──yes──> what was read
                                                      ──no───> read, checked, remembered

A restore or another tool may put another file under the same name. So a file is told by device, inode, size and the
time of its last change, which no tool can set. One that changed a moment ago is read each time: a second change might
have the same time.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.state_store.paths import LakePath

Read = TypeVar("Read")

Place = tuple[int, int, int, int]
"""Device, inode, size and the time of the last change, in nanoseconds."""
_Name = tuple[str, tuple[int, int] | None]
_MOMENT_NS: Final = 20_000_000
"""Longer than two ticks of the clock that files get their times by."""
_LEAST: Final = 512
"""Bytes that a file counts for beside its own: its name and place."""
_PARTS: Final = 16
"""One file must leave room for so many."""


def place_of(about: os.stat_result) -> Place:
    """What tells a file from another one under its name. A tool that restores a file may set any other time of it."""
    return about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns


@dataclass(frozen=True)
class _Known(Generic[Read]):
    place: Place
    size: int
    found: Read


class Unchanged(Generic[Read]):
    """What was read of some files. Safe for several threads, which must not change what they get.

    Args:
        most: bytes that were read to make what is remembered; what was asked for longest ago goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[_Name, _Known[Read]] = OrderedDict()
        self._lock = Lock()

    def read(self, file: LakePath, read: Callable[[], Read], part: tuple[int, int] | None = None) -> Read:
        """What `read` gives, or gave when the file was the same.

        Args:
            part: of the file, that is read: where it begins, and its bytes. Without it, all of it.

        Raises: as `read` does; FileNotFoundError.
        """
        if not isinstance(file, Path):
            return read()
        name = (str(file), part)
        about = os.stat(name[0])
        place = place_of(about)
        with self._lock:
            known = self._kept.get(name)
            if known is not None and known.place == place:
                self._kept.move_to_end(name)
                return known.found
        found = read()
        size = _LEAST + (about.st_size if part is None else part[1])
        if size <= self._most // _PARTS and time.time_ns() - about.st_ctime_ns > _MOMENT_NS:
            self._keep(name, _Known(place, size, found))
        return found

    def _keep(self, name: _Name, known: _Known[Read]) -> None:
        with self._lock:
            before = self._kept.pop(name, None)
            self._kept[name] = known
            self._bytes += known.size - (before.size if before is not None else 0)
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1].size
