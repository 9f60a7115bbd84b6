"""The server that a test's client asks, for what no answer of it shows."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

from strandline.jobs.server.state.server import Server


def server_of(client: TestClient) -> Server:
    """The running server; there is one once the client was entered."""
    assert isinstance(client.app, FastAPI)
    server: Server = client.app.state.server
    return server
