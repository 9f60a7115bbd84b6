"""A server in a thread of this process, on a port of its own, for clients that need a real connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from fastapi import FastAPI


@contextmanager
def listening(app: FastAPI, port: int = 0) -> Iterator[str]:
    """The address of the server, while it runs. Port 0: any that is free."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1))
    thread = Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < end
            time.sleep(0.01)
        (listener,) = server.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        if server.started:
            app.state.server.end_subscriptions()
        thread.join()
