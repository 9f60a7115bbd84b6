"""dbt in its environment of its own (`infra.dbt_environment`), with the adapter as its wheel holds it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from infra.dbt_environment import DISTRIBUTION, prepare
from infra.house.plan import ROOT

_PROGRAM = "from dbt.cli.main import cli; cli()"


def installed_adapter(folder: Path) -> Path:
    """The adapter, installed from its wheel; it is built from a copy, since a build leaves folders behind."""
    source, out = folder / "source", folder / "installed"
    shutil.copytree(DISTRIBUTION, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", str(out), str(source)], check=True)
    return out


def run_dbt(folder: Path, adapter: Path, *arguments: str, failpoint: str = "") -> dict[str, tuple[str, str]]:
    """Run dbt in a project's folder, in which its profile is; {unique id of a node: (its status, its message)}.

    Args:
        failpoint: where dbt is killed; then there is nothing to return.

    Raises:
        AssertionError: dbt did not come to its nodes, or was not killed; what it printed.
    """
    written = folder / "target" / "run_results.json"
    written.unlink(missing_ok=True)
    done = start_dbt(folder, adapter, *arguments, failpoint=failpoint)
    if failpoint:
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        return {}
    assert written.is_file(), done.stdout + done.stderr
    results = json.loads(written.read_text())["results"]
    return {each["unique_id"]: (each["status"], each["message"] or "") for each in results}


def start_dbt(folder: Path, adapter: Path, *arguments: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Run dbt in a project's folder to its end; arguments as of `run_dbt`."""
    environment = {name: each for name, each in os.environ.items() if not name.startswith("STRANDLINE_")}
    environment |= {"STRANDLINE_FAILPOINT": failpoint} if failpoint else {}
    environment |= {
        "PYTHONPATH": f"{adapter}{os.pathsep}{ROOT}",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        "DBT_PROFILES_DIR": str(folder),
    }
    return subprocess.run(
        [str(prepare()), "-c", _PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
