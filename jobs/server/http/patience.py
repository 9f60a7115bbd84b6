"""How long the server waits for a request: connections that say nothing, or half of it, are closed.

uvicorn closes a connection that is idle after an answer, and waits without end for the rest of a request's head. So two
thousand connections that each send a byte a minute would stay, and take the file handles of those who ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

HEAD_SECONDS: Final = 10.0
"""From the connection, or a request's first byte, to the end of its head: a client on a bad line takes two or three."""
BODY_SECONDS: Final = 60.0
"""From the head to the end of the body: the longest body in that time is 140 kB a second."""
_HEAD_BYTES: Final = 64 << 10
"""Of a request's head, which is kept in memory: a token, an event's id and a long `where` take a few thousand."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol of a connection, with an end to its patience."""

    _late: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._late is not None and self._head_bytes > _HEAD_BYTES:
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late, self._head_bytes = None, 0

    def _give_up(self) -> None:
        self._expect_nothing()
        self.transport.close()
