"""How a command ends when something happens that nobody expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from strandline.jobs.cli.command import INTERRUPTED, USER_ERROR, exit_codes


def end_of(error: BaseException) -> int:
    with pytest.raises(typer.Exit) as ended, exit_codes():
        raise error
    return int(ended.value.exit_code)


def test_a_fault_of_ours_is_a_message_and_its_trace_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(ZeroDivisionError("first line\nsecond line")) == USER_ERROR
    said = capsys.readouterr().err
    assert said.startswith("[internal] ZeroDivisionError: first line (")
    assert "Traceback" not in said
    found = re.search(r"file (\S+\.txt)", said)
    assert found is not None
    trace = Path(found[1])
    assert "second line" in trace.read_text()
    trace.unlink()


def test_errors_of_the_system_and_ctrl_c_are_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(NotADirectoryError(20, "Not a directory", "/lake/catalog")) == USER_ERROR
    assert capsys.readouterr().err.startswith("[store.storage_denied] '/lake/catalog' is in the way")
    assert end_of(KeyboardInterrupt()) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted by Ctrl-C: what was committed stays\n"


def test_an_exit_that_was_chosen_stays() -> None:
    assert end_of(typer.Exit(1)) == 1
