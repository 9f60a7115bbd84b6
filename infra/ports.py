"""Free ports of this machine, for servers that tests and benchmarks start."""

from __future__ import annotations

import os
import socket
from itertools import count
from typing import Final

# Below those that the system gives to outgoing connections (32768 and up on Linux): between the look and the server's
# start nobody gets one by chance. Two runs at once begin at different places, and no run tries one twice.
_FIRST: Final = 12_000
_COUNT: Final = 20_000
_STEP: Final = 61
_NEXT = count(os.getpid() * _STEP)


def free_port() -> int:
    """One that nothing listens on, and that this process has not been given before."""
    while True:
        port = _FIRST + next(_NEXT) % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
