"""`infra/setup.sh` writes into no environment that belongs to another checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.house.plan import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script alone; whatever goes past the check fails for the lack of a lock file."""
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "setup.sh", tmp_path / "infra")
    return tmp_path


def _set_up(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "infra/setup.sh", ".venv"], cwd=checkout, env=os.environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_link_to_another_environment_is_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".venv").symlink_to(tmp_path)
    code, said = _set_up(checkout)
    assert (code, "is a link" in said, "remove the link" in said) == (2, True, True)


def test_a_copied_environment_is_refused(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "pyvenv.cfg").write_text("command = /usr/bin/python3 -m venv /elsewhere/.venv\n")
    code, said = _set_up(checkout)
    assert (code, "was made as /elsewhere/.venv" in said) == (2, True)


def test_the_own_environment_is_taken(checkout: Path) -> None:
    subprocess.run(
        [shutil.which("python3") or "python3", "-m", "venv", "--without-pip", ".venv"], cwd=checkout, check=True
    )
    _, said = _set_up(checkout)
    assert "preparing .venv" in said, said
