"""Connections that say nothing, or half of a request, are closed; those that say it slowly, but in time, are not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from strandline.jobs.server.http import requests
from strandline.jobs.server.http.requests import PatientProtocol, PatientSocket
from tests.support.waiting import PATIENCE_SECONDS, wait_until

MUCH = 16 << 20
"""Bytes: more than the kernel keeps for a client that takes none."""
MUCH_ASKED = b"GET /much HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SOCKET_ASKED = (
    b"GET /much HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that answers each request after a while, and waits half a second for its head."""
    monkeypatch.setattr(requests, "HEAD_SECONDS", 0.5)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        import asyncio

        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            for _ in range(MUCH >> 16):
                await send({"type": "websocket.send", "text": "x" * (1 << 16)})
        body = b"x" * MUCH if scope["path"] == "/much" else b"ok"
        await asyncio.sleep(1.0 if body == b"ok" else 0.0)
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    server = uvicorn.Server(
        uvicorn.Config(application, http=PatientProtocol, ws=PatientSocket, lifespan="off", log_level="critical")
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = Thread(target=server.run, args=([listening],))
        running.start()
        try:
            wait_until(lambda: server.started, "it does not start")
            yield listening.getsockname()
        finally:
            server.should_exit = True
            running.join(PATIENCE_SECONDS)


def said(address: tuple[str, int], *parts: bytes, pause: float = 0.0) -> bytes:
    """What a connection gets until it is closed, after it has sent these parts."""
    with socket.create_connection(address, PATIENCE_SECONDS) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            found = b""
            while more := connection.recv(4096):
                found += more
                if found.endswith(b"ok"):
                    break
            return found
        except (BrokenPipeError, ConnectionResetError):
            return b""


@pytest.mark.parametrize("sent", [b"", b"GET", REQUEST[:-2], b"POST / HTTP/1.1\r\nX: "])
def test_half_a_request_is_not_waited_for(address: tuple[str, int], sent: bytes) -> None:
    assert said(address, *([sent] if sent else [])) == b""


def test_a_byte_now_and_then_does_not_help(address: tuple[str, int]) -> None:
    letters = [bytes([letter]) for letter in b"GET / HTTP/1.1\r\nX: " + b"y" * 100]
    assert said(address, *letters, pause=0.05) == b""


def test_a_head_without_end_is_closed(address: tuple[str, int]) -> None:
    assert said(address, b"GET / HTTP/1.1\r\n", *[b"X: " + b"y" * 1000 + b"\r\n"] * 200) == b""


def test_a_request_that_is_answered_slowly_is_answered(address: tuple[str, int]) -> None:
    """Only the head has a limit; and a second request of the connection has one of its own."""
    assert said(address, REQUEST).endswith(b"ok")
    assert said(address, REQUEST[:10], REQUEST[10:], pause=0.1).endswith(b"ok")
    with socket.create_connection(address, PATIENCE_SECONDS) as connection:
        for _ in range(2):
            connection.sendall(REQUEST)
            found = b""
            while not found.endswith(b"ok"):
                found += connection.recv(4096)


def test_many_half_open_connections_leave_room(address: tuple[str, int]) -> None:
    waiting = [socket.create_connection(address, PATIENCE_SECONDS) for _ in range(200)]
    for each in waiting:
        each.sendall(b"GET / HT")
    assert said(address, REQUEST).endswith(b"ok")
    for each in waiting:
        assert each.recv(10) == b""
        each.close()


@contextmanager
def deaf(address: tuple[str, int], asked: bytes = MUCH_ASKED) -> Iterator[socket.socket]:
    """A client that asks for much, and takes nothing."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_SECONDS)
        client.connect(address)
        client.sendall(asked)
        yield client


def is_closed(client: socket.socket) -> bool:
    """True if its connection was ended before all was sent."""
    taken = 0
    try:
        while more := client.recv(1 << 20):
            taken += len(more)
    except ConnectionResetError:
        pass
    return taken < MUCH


@pytest.mark.parametrize("asked", [MUCH_ASKED, SOCKET_ASKED])
def test_who_takes_nothing_is_let_go(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, asked: bytes) -> None:
    monkeypatch.setattr(requests, "STALLED_SECONDS", 0.3)
    with deaf(address, asked) as client:
        time.sleep(2.0)
        assert is_closed(client)


def test_who_takes_it_slowly_gets_all(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "STALLED_SECONDS", 2.0)
    with socket.create_connection(address, PATIENCE_SECONDS) as client:
        client.sendall(MUCH_ASKED)
        taken = 0
        for _ in range(50):
            taken += len(client.recv(200_000, socket.MSG_WAITALL))
            time.sleep(0.1)
        while taken < MUCH and (more := client.recv(1 << 20)):
            taken += len(more)
        assert taken >= MUCH


def test_answers_that_nobody_takes_are_bounded_together(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "UNTAKEN_BYTES", 2 * MUCH)
    with ExitStack() as opened:
        clients = []
        for _ in range(5):
            clients.append(opened.enter_context(deaf(address)))
            time.sleep(0.2)
        time.sleep(1.5)
        assert [is_closed(each) for each in clients] == [True, True, True, False, False]
