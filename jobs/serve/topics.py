"""How far answers are behind their topics: the topics' ends, seen twice a second for as long as anybody asks.

    ends of `visits`   12:00:00.0 → 41     12:00:00.5 → 44     12:00:01.0 → 44
    an answer that reflects 41 at 12:00:01.1: 3 records behind, and what it reflects was all there was 1.1 s ago

The age of a commit does not say it: a quiet topic and a dead pipeline both leave the last one to grow old.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.topics import open_log
from strandline.jobs.serve.errors import RequestRefused, TooStale
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

_LOOK_SECONDS: Final = 0.5
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

    def met_by(self, reached: Mapping[int, int]) -> bool:
        return all(reached.get(partition, 0) >= end for partition, end in self.ends.items())

    def behind(self, reached: Mapping[int, int]) -> int:
        return sum(max(0, end - reached.get(partition, 0)) for partition, end in self.ends.items())


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

    def lag(self, offsets: Mapping[str, Mapping[int, int]] | None) -> Lag | None:
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

    def check(self, offsets: Mapping[str, Mapping[int, int]] | None, seconds: float) -> None:
        """Check that an answer is not further behind. Looks at the topics, unless that was done a moment ago.

        Raises:
            TooStale: it is, or nobody knows.
        """
        hint = "ask again, or allow more; is its pipeline running? See `strandline status`"
        if offsets is None:
            raise TooStale("a table of the answer is not there yet, so nobody knows how far it is behind", hint=hint)
        try:
            self.look(offsets, min(seconds, _LOOK_SECONDS))
        except StrandlineError as error:
            raise TooStale(
                f"nobody knows how far the answer is behind its topics: {error.message}", hint=hint
            ) from error
        lag = self.lag(offsets)
        if lag is None or not lag.known or lag.ms > seconds * 1000:
            behind = f", by {lag.records:,} records" if lag is not None else ""
            raise TooStale(f"the answer is more than {seconds:g} s behind its topics{behind}", hint=hint)

    def fresh(self, offsets: Mapping[str, Mapping[int, int]] | None, seconds: float) -> bool:
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
            self._looks.setdefault(topic, deque(maxlen=_KEPT_LOOKS)).append(_Look(at, ends))

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
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
