"""The processes that answer queries: one that was ended has a successor that is ready."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.errors import TimeLimit
from strandline.jobs.serve.terms import QueryLimits, Terms
from strandline.jobs.server.state.pool import Queries
from strandline.jobs.server.state.worker import Shared
from strandline.state_store.errors import InternalError
from tests.support.waiting import PATIENCE_SECONDS


@dataclass(frozen=True)
class Number:
    """A question whose answer is the number of the process."""

    seconds: float = 0.0
    limit: float = PATIENCE_SECONDS

    @property
    def terms(self) -> Terms:
        return Terms(QueryLimits(seconds=self.limit))

    def answered(self, _: Shared) -> int:
        time.sleep(self.seconds)
        return os.getpid()


def test_a_process_that_was_ended_has_a_spare_one_in_its_place(tmp_path: Path) -> None:
    queries = Queries(load_settings(lake=tmp_path), QueryLimits(), 1, spares=1)
    try:
        first = queries.answer(Number())
        assert queries.answer(Number()) == first
        spare = queries._spare.get()
        queries._spare.put(spare)
        with pytest.raises(TimeLimit):
            queries.answer(Number(seconds=PATIENCE_SECONDS, limit=0.1))
        assert queries.answer(Number()) == spare._process.pid != first
        assert not queries._spare.empty()
    finally:
        queries.close()


@dataclass(frozen=True)
class Faulty(Number):
    """A question in whose answer nobody thought of something."""

    def answered(self, _: Shared) -> int:
        return [0][1]


def test_a_fault_of_ours_ends_no_process(tmp_path: Path) -> None:
    """The next query waited for another one, and the client heard that its query needs too much memory."""
    queries = Queries(load_settings(lake=tmp_path), QueryLimits(), 1)
    try:
        first = queries.answer(Number())
        with pytest.raises(InternalError, match="a fault of Strandline's own"):
            queries.answer(Faulty())
        assert queries.answer(Number()) == first
    finally:
        queries.close()
