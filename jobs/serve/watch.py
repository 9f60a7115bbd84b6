"""The watch over a lake's tables: tells of a commit when it is there, without asking for it again and again.

    <lake>/tables/<name>/_delta_log/<version>.json appears ──inotify──> told(name)

Where nothing tells (an object store; a system that allows no more watches), followed tables are looked at once a
second. Nothing's correctness rests on the watch: whoever is told looks at the log, and is told of every table now and
then whether it moved or not.

Those who are told look in threads of their own (`Poller`).
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from strandline.state_store.delta import log
from strandline.state_store.errors import StoreError
from strandline.state_store.files import make_folder
from strandline.state_store.layout import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.state_store.layout import LakeLayout


logger = logging.getLogger("strandline.serve")

_STEP_MS: Final = 5
"""How long notifications are gathered: a commit writes a few files within about a millisecond."""
_SWEEP_MS: Final = 5_000
"""All tables are looked at so often besides: notifications are lost when the kernel's queue is full."""
_LOOK_SECONDS: Final = 1.0
"""A look is one listing of a log for each followed table, and a store answers some thousands of them a second."""
_COMMIT = re.compile(r"([^/]+)/_delta_log/[0-9]{20}\.json$")


class CommitWatch:
    """A thread that tells of commits. Close it by `with`.

    Args:
        told: called in that thread with the name of a table that may have a new version.
        followed: the tables that are of interest at the moment.
    """

    def __init__(self, lake: LakeLayout, told: Callable[[str], None], followed: Callable[[], Iterable[str]]) -> None:
        self._lake = lake
        self._told = told
        self._followed = followed
        self._stop = Event()
        self._thread = Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tables = self._lake.tables
        if isinstance(tables, Path):
            try:
                self._notified(tables)
                return
            except OSError as error:
                logger.warning("commits are looked for once a second: the system gives no notifications: %s", error)
        self._asking()

    def _notified(self, tables: Path) -> None:
        from watchfiles import watch

        make_folder(tables)
        looks = watch(
            tables,
            watch_filter=lambda _, path: _COMMIT.search(path) is not None,
            step=_STEP_MS,
            debounce=_STEP_MS * 4,
            rust_timeout=_SWEEP_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
        )
        for changes in looks:
            found = {match[1] for _, path in changes if (match := _COMMIT.search(path))}
            for name in {name_of(folder) for folder in found} if changes else set(self._followed()):
                self._told(name)

    def _asking(self) -> None:
        known: dict[str, int | None] = {}
        while not self._stop.wait(_LOOK_SECONDS):
            for name in list(self._followed()):
                try:
                    version = log.newest_version(self._lake.table(name))
                except StoreError:
                    continue  # a store that does not answer is asked again; readers of the table see the error
                if version != known.get(name):
                    known[name] = version
                    self._told(name)


LOOK_SECONDS: Final = 5.0
"""After an error, and where no notification comes: as often as the watch sweeps."""


class Poller(ABC):
    """Base of background pollers; call `begin()` last in `__init__`. Any thread may call the rest.

    Args:
        pause: seconds after a look in which there is no other: news that come meanwhile wait for the next one.
    """

    def __init__(self, name: str, pause: float = 0.0) -> None:
        self._pause = pause
        self._wake, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def look(self) -> bool:
        """Look, in the thread; False ends it. An error that it raises is a fault of ours: it is logged, and it looks
        again."""

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """There may be news."""
        self._wake.set()

    def stop(self) -> None:
        """Let the thread end after the look that it is at."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self.stop()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """True once the thread has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                if not self.look():
                    return
            except Exception:
                logger.exception("'%s' stands still", self._thread.name)
            self._stop.wait(self._pause)
            self._wake.wait(LOOK_SECONDS)
