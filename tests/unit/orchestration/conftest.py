"""What Dagster leaves behind that runs something in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Dagster takes SIGTERM for what SIGINT is, and leaves it so: ignored, where a shell has started the tests in the
    background. `orchestration.up` sets handlers for its process's whole life."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
