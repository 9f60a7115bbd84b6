"""The watch over a lake's tables: tells of a commit when it is there, without asking for it again and again.

    <lake>/tables/<name>/_delta_log/<version>.json appears ──inotify──> told(name)

Where nothing tells (an object store; a system that allows no more watches), followed tables are looked at once a
second. Nothing's correctness rests on the watch: whoever is told looks at the log, and is told of every table now and
then whether it moved or not.
"""

from __future__ import annotations

import logging
import re
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
