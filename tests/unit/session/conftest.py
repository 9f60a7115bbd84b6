"""A session without a JVM."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    return Interpreter(settings)
