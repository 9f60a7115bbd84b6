"""A drain that ends at some point of its intake, as a killed process does."""

from __future__ import annotations

import random
from typing import Final

import pytest

from strandline.jobs.ingest import event_logs
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain

_PLACES: Final = ("before-log-commit", "after-log-commit")


class _Broken(BaseException):
    """Nothing handles it, as nothing handles a kill."""


def broken_drain(settings: Settings, pipeline: str, pick: random.Random, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Drain in the driver until a place that is drawn; the place, or None where the drain ended before it."""
    passes, wanted = pick.randrange(1, 4), pick.choice(_PLACES)

    def failpoint(name: str) -> None:
        nonlocal passes
        passes -= name == wanted
        if passes == 0:
            raise _Broken

    with monkeypatch.context() as patched:
        patched.setattr(event_logs, "failpoint", failpoint)
        try:
            drain(settings, pipeline, in_driver=True)
        except _Broken:
            return wanted
    return None
