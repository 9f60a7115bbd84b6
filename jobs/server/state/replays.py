"""Versions that are sent again to those who subscribe: each encoded once, kept on disk, and taken in pieces.

    snapshot, or changes of a version ──encode (few threads)──> lines of a file without a name ──pieces──> subscribers

A snapshot has as many events as its view has rows, and a subscriber takes them at its own pace, maybe never. In memory
forty subscribers of a view of 100,000 rows took 2.6 GB.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import Busy
from strandline.jobs.server.state.events import PushedEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable

    from strandline.jobs.server.state.events import Place

_THREADS: Final = 2
"""That encode: a thousand who come back at once shall not take the processor from look-ups."""
_MOST_BYTES: Final = 4 << 30
"""On disk, of all that is being sent: a hundred snapshots of some hundred thousand rows."""
_IN_MEMORY: Final = 1 << 18
"""A version of so many bytes needs no file."""
_PIECE_BYTES: Final = 1 << 16
"""Of events that a subscriber has in memory."""


class Replay:
    """The events of one version. One thread adds them; then any may take pieces.

    Args:
        first: the place before the first event.
        count: is told of bytes before they are kept; may raise.
    """

    def __init__(self, first: Place, count: Callable[[int], None]) -> None:
        self._first = first
        self._count = count
        self._file = SpooledTemporaryFile[bytes](_IN_MEMORY)
        self._lock = Lock()
        self._numbers = [0]
        self._offsets = [0]
        self._kind = ""
        self._events = 0
        self.size = 0

    def add(self, event: PushedEvent) -> None:
        """Keep one more event."""
        line = event.data.encode() + b"\n"
        self._count(len(line))
        self._file.write(line)
        self._kind = event.kind
        self._events += 1
        self.size += len(line)
        if self.size - self._offsets[-1] >= _PIECE_BYTES:
            self._numbers.append(self._events)
            self._offsets.append(self.size)

    def piece(self, sent: int) -> list[PushedEvent]:
        """Some of the events after so many of them; none: these were all."""
        if sent >= self._events:
            return []
        place = bisect_right(self._numbers, sent) - 1
        begin, end = self._offsets[place], [*self._offsets[place + 1 : place + 2], self.size][0]
        with self._lock:
            self._file.seek(begin)
            lines = self._file.read(end - begin).split(b"\n")[:-1]
        number = self._numbers[place]
        return [
            PushedEvent(self._kind, replace(self._first, sent=at), data.decode())
            for at, data in enumerate(lines[sent - number :], start=sent + 1)
        ]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


@dataclass
class _Shared:
    """A replay that is made, or is there, and how many take it."""

    made: asyncio.Future[Replay]
    takers: int = 0


class Replays:
    """The replays of a server. Its event loop works with it.

    Args:
        most_bytes: of all that are there at once.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = Lock()
        self._shared: dict[Hashable, _Shared] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "replays")

    @asynccontextmanager
    async def opened(
        self, name: Hashable, first: Place, events: Callable[[], Iterable[PushedEvent]]
    ) -> AsyncIterator[Replay]:
        """A replay for the duration of the block; all who ask by one name at a time share it.

        Args:
            first: the place before the first event.
            events: makes all of them, in a thread.

        Raises:
            Busy: there are too many bytes of others.
            StrandlineError: as `events`.
        """
        shared = self._shared.get(name)
        if shared is None:
            made = asyncio.get_running_loop().run_in_executor(self._threads, self._encoded, first, events)
            shared = self._shared[name] = _Shared(made)
        shared.takers += 1
        try:
            yield await asyncio.shield(shared.made)
        finally:
            shared.takers -= 1
            if not shared.takers:
                del self._shared[name]
                shared.made.add_done_callback(self._close)

    def close(self) -> None:
        """Make no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encoded(self, first: Place, events: Callable[[], Iterable[PushedEvent]]) -> Replay:
        made = Replay(first, self._keep)
        try:
            for event in events():
                made.add(event)
        except BaseException:
            self._release(made)
            raise
        return made

    def _keep(self, size: int) -> None:
        with self._lock:
            if self._bytes + size > self._most_bytes:
                raise Busy("too many snapshots are being sent to others")
            self._bytes += size

    def _release(self, replay: Replay) -> None:
        replay.close()
        with self._lock:
            self._bytes -= replay.size

    def _close(self, made: asyncio.Future[Replay]) -> None:
        if not made.cancelled() and made.exception() is None:
            self._release(made.result())
