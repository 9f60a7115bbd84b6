"""Ctrl-C and SIGTERM: a stop that the work obeys, or the end of a process that does not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_SECONDS

_OBEYS = "stop.wait(600)"
_STUCK = "time.sleep(600)"


def ended(body: str, number: signal.Signals, grace: float) -> tuple[int, str]:
    """Exit code and last words of a process that gets a signal while it does `body`."""
    program = (
        f"import sys, time\nfrom strandline.jobs.cli import command\ncommand._GRACE_SECONDS = {grace}\n"
        "from strandline.jobs.cli.command import stopped_by_signal\n"
        f"with stopped_by_signal() as stop:\n    print('ready', flush=True)\n    {body}\nsys.exit(stop.code)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        _, said = child.communicate(timeout=PATIENCE_SECONDS)
        return child.returncode, said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_obeys_ends_by_itself(number: signal.Signals, code: int) -> None:
    done, said = ended(_OBEYS, number, 600)
    assert done == code
    assert said == f"{number.name}: stopping; what was committed stays\n"


def test_work_that_does_not_is_abandoned() -> None:
    """As in the middle of a long epoch. The commits of an epoch are atomic: nothing is half done."""
    done, said = ended(_STUCK, signal.SIGINT, 0.5)
    assert done == 130
    assert said.splitlines()[-1] == "the work at hand was abandoned: the next run goes on from the last commit"
