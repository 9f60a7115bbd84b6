"""The layer rule is held by the linter: this shows that the linter would notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("state_store/x.py", "import jobs.sql"),
        ("state_store/x.py", "from orchestration import translator"),
        ("state_store/x.py", "import dagster"),
        ("jobs/sql/x.py", "from orchestration.translator import Translator"),
        ("jobs/x.py", "import dagster"),
        ("orchestration/x.py", "from tests import oracle"),
    ],
)
def test_an_import_against_the_layers_is_refused(file: str, line: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", file, "-"]
    done = subprocess.run(command, input=f"{line}\n", text=True, capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert "TID251" in done.stdout


def test_an_import_along_the_layers_is_allowed() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", "jobs/x.py", "-"]
    source = "import dagster_pipes\nfrom state_store import reader\n"
    done = subprocess.run(command, input=source, text=True, capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
