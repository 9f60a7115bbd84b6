"""A free port of this machine, for a server that a test starts."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
