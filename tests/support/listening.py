"""A server in a thread of this process, on a port of its own, for clients that need a real connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from fastapi import FastAPI

from tests.support.waiting import wait_until


@contextmanager
def listening(app: FastAPI, port: int = 0) -> Iterator[str]:
    """The address of the server, while it runs. Port 0: any that is free."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1))
    # A daemon, so that one that lives as long as the run is no thread that a module has left behind.
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server does not start")
        assert server.started, "the server has ended: see its log"
        (listener,) = server.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        if server.started:
            app.state.server.end_subscriptions()
        thread.join()
