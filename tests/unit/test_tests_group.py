"""`infra/tests.sh`: few failures get a second run, which both can fail; many get none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "infra" / "tests.sh"
LUCKY = """
def test_lucky():
    first = not Path("seen").exists()
    Path("seen").touch()
    assert not first
"""


def _run(tmp_path: Path, tests: str) -> tuple[int, str]:
    (tmp_path / "test_it.py").write_text("from pathlib import Path\n" + tests)
    environment = {**os.environ, "VENV": sys.prefix, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        ["bash", str(SCRIPT), "it", "-q", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_fails_once_is_run_again_and_named(tmp_path: Path) -> None:
    code, output = _run(tmp_path, LUCKY + "def test_fine(): pass\n")
    assert code == 0
    assert "FAILED ONCE, run again:\ntest_it.py::test_lucky\n" in output
    assert "1 failed, 1 passed" in output
    assert "\n1 passed" in output


def test_a_test_that_fails_twice_fails_the_group(tmp_path: Path) -> None:
    code, output = _run(tmp_path, LUCKY + "def test_broken(): assert 0\n")
    assert code == 1
    assert "1 failed, 1 passed" in output


@pytest.mark.parametrize(
    "tests",
    [LUCKY + "def test_{}(): assert 0\n".format("(): assert 0\ndef test_".join("abc")), "no python"],
    ids=["four", "not collected"],
)
def test_many_failures_or_none_to_run_again_fail_at_once(tests: str, tmp_path: Path) -> None:
    code, output = _run(tmp_path, tests)
    assert code != 0
    assert "run again" not in output
