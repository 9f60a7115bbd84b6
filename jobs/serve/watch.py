"""The watch over a lake: tells of a table's commit when it is there, and how far answers are behind their topics.

    <lake>/tables/<name>/_delta_log/<version>.json appears ──inotify──> told(name)

Where nothing tells (an object store; a system that allows no more watches), followed tables are looked at once a
second. Nothing's correctness rests on the watch: whoever is told looks at the log, and is told of every table now and
then whether it moved or not.

Those who are told look in threads of their own (`Poller`).

The ends of topics are seen twice a second, for as long as anybody asks:

    ends of `visits`   12:00:00.0 → 41     12:00:00.5 → 44     12:00:01.0 → 44
    an answer that reflects 41 at 12:00:01.1: 3 records behind, and what it reflects was all there was 1.1 s ago

A topic that was deleted and made again begins anew: no answer of the former one's records reflects what is in it.

The age of a commit does not say it: a quiet topic and a dead pipeline both leave the last one to grow old.
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.topics import open_log
from strandline.jobs.serve.errors import RequestRefused, TooStale
from strandline.state_store.delta import log
from strandline.state_store.errors import StoreError, StrandlineError
from strandline.state_store.files import make_folder
from strandline.state_store.layout import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.consistent_snapshot import Reach
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


_ENDS_SECONDS: Final = 0.5
"""A broker answers some thousands of such questions a second, and staleness is asked for in seconds."""
_ASKED_SECONDS: Final = 60.0
"""A topic whose answers nobody has asked for since is not looked at any more."""
_KEPT_LOOKS: Final = 600
"""Five minutes: of what is further behind only so much is known."""
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|min)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0}


@dataclass(frozen=True)
class Lag:
    """How far an answer is behind the topics that it is made of.

    Attributes:
        records: of those topics that it does not reflect.
        ms: it reflects all that was in them so long ago; of an answer that has been behind for longer than the server
            has looked, as long as that.
        known: `ms` is not only the least that it may be.
    """

    records: int
    ms: int
    known: bool


@dataclass(frozen=True)
class _Look:
    at: float
    ends: Mapping[int, int]
    id: str

    def is_of(self, reached: Reach) -> bool:
        """False if what is reflected came from another topic of that name, as far as both are known."""
        return not self.id or reached.ids <= {self.id}

    def met_by(self, reached: Reach) -> bool:
        return self.behind(reached) == 0 and self.is_of(reached)

    def behind(self, reached: Reach) -> int:
        known = reached.ends if self.is_of(reached) else {}
        return sum(max(0, end - known.get(partition, 0)) for partition, end in self.ends.items())


class Topics:
    """The ends of topics, and the thread that looks at them. Any thread may ask."""

    def __init__(self, settings: Settings, lake: LakeLayout) -> None:
        self._settings = settings
        self._lake = lake
        self._lock = Lock()
        self._log: Log | None = None
        self._looks: dict[str, deque[_Look]] = {}
        self._asked: dict[str, float] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, name="topics", daemon=True)
        self._thread.start()

    def lag(self, offsets: Mapping[str, Reach] | None) -> Lag | None:
        """How far an answer is behind; None where nobody knows (yet). Does not wait.

        Args:
            offsets: that it reflects, of each topic that it is made of; None: of a table that is not there.
        """
        if offsets is None:
            return None
        now = time.monotonic()
        records, oldest, known = 0, now, True
        for topic, reached in offsets.items():
            self._asked[topic] = now
            looks = self._looks.get(topic)
            if not looks:
                return None
            seen = list(looks)
            records += seen[-1].behind(reached)
            met = next((look for look in reversed(seen) if look.met_by(reached)), None)
            known &= met is not None
            oldest = min(oldest, seen[0].at if met is None else met.at)
        return Lag(records, int((now - oldest) * 1000), known)

    def check(self, offsets: Mapping[str, Reach] | None, seconds: float) -> None:
        """Check that an answer is not further behind. Looks at the topics, unless that was done a moment ago.

        Raises:
            TooStale: it is, or nobody knows.
        """
        hint = "ask again, or allow more; is its pipeline running? See `strandline status`"
        if offsets is None:
            raise TooStale("a table of the answer is not there yet, so nobody knows how far it is behind", hint=hint)
        try:
            self.look(offsets, min(seconds, _ENDS_SECONDS))
        except StrandlineError as error:
            raise TooStale(
                f"nobody knows how far the answer is behind its topics: {error.message}", hint=hint
            ) from error
        for topic, reached in offsets.items():
            looks = self._looks.get(topic)
            if looks and not looks[-1].is_of(reached):
                raise TooStale(
                    f"topic '{topic}' was deleted and made again, and the answer is made of the former one's records",
                    hint="its pipeline stops for it: `strandline status` says what to type",
                )
        lag = self.lag(offsets)
        if lag is None or not lag.known or lag.ms > seconds * 1000:
            behind = f", by {lag.records:,} records" if lag is not None else ""
            raise TooStale(f"the answer is more than {seconds:g} s behind its topics{behind}", hint=hint)

    def fresh(self, offsets: Mapping[str, Reach] | None, seconds: float) -> bool:
        """True if an answer is not further behind, as `check`."""
        try:
            self.check(offsets, seconds)
        except TooStale:
            return False
        return True

    def look(self, topics: Iterable[str], age: float = 0.0) -> None:
        """Look at the ends of topics, but for those that were looked at so few seconds ago.

        Raises:
            SourceUnavailable, TopicMissing: one does not answer, or is not there.
        """
        for topic in topics:
            looks = self._looks.get(topic)
            if looks and time.monotonic() - looks[-1].at < age:
                continue
            at = time.monotonic()
            with self._lock:
                self._log = self._log or open_log(self._settings, self._lake)
                ends = self._log.end_offsets(topic)
                # After the ends: those of a topic that is made again in between are not taken for the new one's.
                topic_id = self._log.identity(topic).id
            self._looks.setdefault(topic, deque(maxlen=_KEPT_LOOKS)).append(_Look(at, ends, topic_id))

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_ENDS_SECONDS):
            now = time.monotonic()
            for topic, asked in list(self._asked.items()):
                if now - asked > _ASKED_SECONDS:
                    self._asked.pop(topic, None)
                    self._looks.pop(topic, None)
                    continue
                try:
                    self.look((topic,))
                except StrandlineError:
                    continue  # what was seen last grows old, and the answers say so


def staleness(text: object) -> float | None:
    """The seconds that a request allows an answer to be behind; None: as many as there are.

    Raises:
        RequestRefused: the text is no duration.
    """
    if text is None or text == "":
        return None
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise RequestRefused("'max_staleness' is a duration: 500ms, 2s, 1min")
    return int(found[1]) * _SECONDS[found[2]]
