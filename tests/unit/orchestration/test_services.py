"""A service that ends by itself is started again, until it is clear that it will not stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.orchestration.up import RESTARTS, Service
from tests.support.waiting import wait_until
from tests.unit.orchestration.child_drains import alive

STAYS = "import time; print('here', flush=True); time.sleep(600)"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service("Dagster's daemon", ["-c", STAYS], tmp_path / "output" / "daemon.log")
    yield made
    made.stop()


def test_a_service_that_is_killed_is_back_with_its_log_kept(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    before = service.process.pid
    assert service.revive()
    assert service.process.pid == before, "it lives: nothing is done"
    wait_until(lambda: service.tail() == "here", "it did not start")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: service.process.poll() is not None, "it was not killed")
    assert service.revive()
    assert service.process.pid != before
    assert alive(service.process.pid)
    wait_until(lambda: service.tail() == "here\nhere", "it was not started again")
    assert "Dagster's daemon ended by itself and is started again" in capsys.readouterr().err


def test_a_service_that_ends_at_every_start_is_given_up(tmp_path: Path) -> None:
    service = Service("daemon", ["-c", "print('no')"], tmp_path / "output" / "daemon.log")
    for _ in range(RESTARTS):
        wait_until(lambda: service.process.poll() is not None, "it did not end")
        assert service.revive()
    wait_until(lambda: service.process.poll() is not None, "it did not end")
    assert not service.revive()
    assert "no" in service.tail()
