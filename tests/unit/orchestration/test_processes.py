"""The end of a drain that Dagster starts: nothing of it outlives its step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from strandline.orchestration import launch
from strandline.orchestration.launch import DrainClient, ProcessGroup, last_lines, signals_held_back
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.orchestration.child_drains import (
    STANDS_AND_REFUSES,
    alive,
    child,
    failure_of,
    packages,
    pids_in,
    retries_of,
)


def test_a_cancelled_run_leaves_nothing_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel arrives as SIGINT in the step's process. The child and its worker both refuse SIGTERM."""
    noted = tmp_path / "pids"
    command = child(STANDS_AND_REFUSES, noted)
    found: list[int] = []

    def cancel() -> None:
        found.extend(pids_in(noted))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=cancel, daemon=True).start()
    assets = packages(command, monkeypatch, DrainClient(grace_seconds=0.5))
    with pytest.raises((KeyboardInterrupt, DagsterExecutionInterruptedError)):
        dg.materialize([assets])
    assert len(found) == 2
    assert not [pid for pid in found if alive(pid)]


def test_a_drain_past_its_time_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pids"
    client = DrainClient(grace_seconds=0.2, timeout_seconds=0.5)

    class Begun(ProcessGroup):
        """Its time begins when it refuses to end: Python may need seconds until then."""

        def wait(self, timeout: float | None = None) -> int:
            pids_in(noted)
            return super().wait(timeout)

    monkeypatch.setattr(launch, "ProcessGroup", Begun)
    assets = packages(child(STANDS_AND_REFUSES, noted), monkeypatch, client)
    result = dg.materialize([assets], raise_on_error=False)
    assert "longer than 0.5 s" in failure_of(result)[0]
    assert retries_of(result) == 0
    assert not [pid for pid in pids_in(noted) if alive(pid)]


def test_a_child_ends_itself_when_its_watcher_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the step's process gives it no chance to clean up: the child's lifeline does.

    The worker is left out here: Spark's workers end with the JVM, whose end the kernel's pipe tells them.
    """
    noted = tmp_path / "pids"
    stands = """
    def drain(settings, name):
        import os, time
        pids.write_text(f'{os.getpid()} {os.getppid()}')
        time.sleep(600)
    """
    watcher = f"""
    import dagster as dg
    from strandline.orchestration.launch import DrainClient
    @dg.asset
    def drained(context: dg.AssetExecutionContext):
        return DrainClient().run(context=context, command={child(stands, noted)!r}).get_results()
    dg.materialize([drained])
    """
    step = subprocess.Popen([sys.executable, "-c", textwrap.dedent(watcher)], start_new_session=True)
    pid, parent = pids_in(noted)
    assert parent == step.pid
    step.kill()
    step.wait()
    wait_until(lambda: not alive(pid), "the child outlived its watcher")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_held_back_comes_once_the_body_is_done(number: signal.Signals) -> None:
    def raises(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    done: list[str] = []
    before = signal.signal(number, raises)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            with signals_held_back(), signals_held_back():
                os.kill(os.getpid(), number)
                done.append("the child is known")
            done.append("nothing after it")
        assert done == ["the child is known"]
        assert signal.getsignal(number) is raises
    finally:
        signal.signal(number, before)


def test_a_child_hears_the_signals_that_its_parent_ignores() -> None:
    """A script's shell lets what it starts with `&` ignore SIGINT, and Dagster takes SIGTERM for what SIGINT is."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asks = "import signal, sys; sys.stderr.write(f'{signal.getsignal(signal.SIGINT) is not signal.SIG_IGN}\\n')"
        group = ProcessGroup([sys.executable, "-c", f"{asks}; signal.pause()"], stderr=subprocess.PIPE)
        assert group.stderr.readline() == "True\n"
        os.kill(group.pid, signal.SIGTERM)
        assert group.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        group.stderr.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_thread_holds_no_signal_back() -> None:
    """Python runs handlers in the main thread, and lets no other set them."""
    done: list[str] = []

    def body() -> None:
        with signals_held_back():
            done.append("done")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert done == ["done"]


def test_the_last_lines_of_a_long_output_are_read_from_its_end(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text("".join(f"line {number} ü\n" for number in range(100_000)))
    assert last_lines(output, 2) == ["line 99998 ü", "line 99999 ü"]
    output.write_text("only\n")
    assert last_lines(output, 4) == ["only"]
