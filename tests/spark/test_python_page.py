"""The page on the Python API: its examples run as printed, in a process of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_page_run_as_printed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "jobs" / "pipelines" / "longest_visits.sql", tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    environment |= {"PYTHONPATH": str(ROOT), "STRANDLINE_SPARK__MASTER": "local[2]"}
    define = "from strandline.jobs.cli.main import main; main()"
    for command in (
        ["-c", define, "sql", "-f", "longest_visits.sql"],
        ["-m", "doctest", str(ROOT / "docs" / "python.md")],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
