"""Ctrl-C and SIGTERM: a stop that the work obeys, or the end of a process that does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

_OBEYS = "stop.wait(60)"
_STUCK = "time.sleep(60)"


def ended(body: str, number: signal.Signals) -> tuple[int, float, str]:
    """Exit code, seconds and last words of a process that gets a signal while it does `body`."""
    program = (
        "import sys, time\nfrom jobs.cli.stopping import stopped_by_signal\n"
        f"with stopped_by_signal() as stop:\n    print('ready', flush=True)\n    {body}\nsys.exit(stop.code)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        began = time.monotonic()
        child.send_signal(number)
        _, said = child.communicate(timeout=20)
        return child.returncode, time.monotonic() - began, said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_obeys_ends_at_once(number: signal.Signals, code: int) -> None:
    done, seconds, said = ended(_OBEYS, number)
    assert done == code
    assert seconds < 3
    assert said == f"{number.name}: stopping; what was committed stays\n"


def test_work_that_does_not_is_abandoned_within_five_seconds() -> None:
    """As in the middle of a long epoch. The commits of an epoch are atomic: nothing is half done."""
    done, seconds, said = ended(_STUCK, signal.SIGINT)
    assert done == 130
    assert seconds < 5
    assert said.splitlines()[-1] == "the work at hand was abandoned: the next run goes on from the last commit"
