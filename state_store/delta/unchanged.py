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
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from state_store.paths import LakePath

Read = TypeVar("Read")

_Place = tuple[int, int, int, int]
_MOMENT_NS: Final = 20_000_000
"""Longer than two ticks of the clock that files get their times by."""


class Unchanged(Generic[Read]):
    """What was read of some files. Safe for several threads, which must not change what they get.

    Args:
        most: files to remember; the one that was asked for longest ago goes first.
        largest: bytes; of a larger file nothing is remembered.
    """

    def __init__(self, most: int, largest: int) -> None:
        self._most = most
        self._largest = largest
        self._kept: OrderedDict[tuple[str, object], tuple[_Place, Read]] = OrderedDict()
        self._lock = Lock()

    def read(self, file: LakePath, read: Callable[[], Read], part: object = None) -> Read:
        """What `read` gives, or gave when the file was the same.

        Args:
            part: of the file, that is read; compared by value.

        Raises: as `read` does; FileNotFoundError.
        """
        if not isinstance(file, Path):
            return read()
        name = (str(file), part)
        about = os.stat(name[0])
        place = (about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns)
        with self._lock:
            known = self._kept.get(name)
            if known is not None and known[0] == place:
                self._kept.move_to_end(name)
                return known[1]
        found = read()
        if about.st_size <= self._largest and time.time_ns() - about.st_ctime_ns > _MOMENT_NS:
            with self._lock:
                self._kept[name] = (place, found)
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        return found
