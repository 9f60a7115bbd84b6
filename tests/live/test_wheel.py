"""The wheel, installed where nothing else of the project is, beside a project that has folders of the same names.

A Dagster project has a folder `jobs` of its own, and Python finds what lies in the current folder first: all that the
package imports must be below its one name, `strandline`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from infra.house.plan import FACADE, ROOT, TOOLS, TOPS
from infra.ports import free_port

FOREIGN = (*TOPS, *TOOLS)
SHOP = """
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'info', VALUE_FORMAT = 'JSON');
CREATE MATERIALIZED VIEW counts AS SELECT category, COUNT(*) AS n FROM info GROUP BY category;
INSERT INTO info VALUES ('leek', 'Vegetable');
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree: a build leaves folders behind, and takes what an earlier one left."""
    source = tmp_path_factory.mktemp("source")
    for name in (*TOPS, *FACADE):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "dagster.yaml", "workspace.yaml"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel. Libraries and jars are those of this one, without its checkout."""
    home = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(home / "bin" / "python"), "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    # A path in a .pth file is searched; the .pth files that lie there, the editable install's among them, are not read.
    (purelib / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (home / "share").mkdir(exist_ok=True)
    (home / "share" / "strandline").symlink_to(Path(sys.prefix) / "share" / "strandline")
    return home / "bin"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with packages of our names that fail when they are imported."""
    folder = tmp_path_factory.mktemp("project")
    for name in FOREIGN:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise AssertionError('the project has its own {name}')\n")
    return folder


def _environment(project: Path) -> dict[str, str]:
    """What the commands see: the project's lake, and nothing of this checkout."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**inherited, "STRANDLINE_LAKE": str(project / "lake"), "DAGSTER_HOME": str(project)}


def _run(installed: Path, project: Path, *command: str) -> str:
    line = [str(installed / command[0]), *command[1:]]
    done = subprocess.run(line, cwd=project, env=_environment(project), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_has_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"strandline"}
    for expected in ("jobs/pipelines/longest_visits.sql", "jobs/server/page/index.html", "orchestration/dagster.yaml"):
        assert f"strandline/{expected}" in names
    assert "strandline/py.typed" in names


@pytest.fixture(scope="module")
def drained(installed: Path, project: Path) -> Path:
    """The project with a view that has been defined and refreshed by the installed commands."""
    (project / "shop.sql").write_text(SHOP)
    _run(installed, project, "strandline", "sql", "-f", "shop.sql")
    _run(installed, project, "strandline", "run", "shop", "--mode", "drain")
    return project


def test_define_drain_and_query_beside_foreign_folders(installed: Path, drained: Path) -> None:
    assert "Vegetable" in _run(installed, drained, "strandline", "sql", "-e", "SELECT * FROM counts;")


def test_serve_beside_foreign_folders(installed: Path, drained: Path) -> None:
    port = free_port()
    command = [str(installed / "strandline"), "serve", "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=drained, env=_environment(drained)) as server:
        try:
            url = f"http://127.0.0.1:{port}/v1/views/counts/rows/Vegetable"
            assert b'"n":1' in _get(url, server).replace(b" ", b"")
        finally:
            server.terminate()


def test_dagster_loads_its_definitions_beside_foreign_folders(installed: Path, project: Path) -> None:
    module = "strandline.orchestration.definitions"
    _run(installed, project, "python", "-m", "dagster", "definitions", "validate", "-m", module)
    where = _run(installed, project, "python", "-c", f"import {module} as found; print(found.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parent)


def _get(url: str, server: subprocess.Popen[bytes], seconds: float = 120.0) -> bytes:
    """The answer of a server that is starting; a server that has ended is no reason to wait."""
    until = time.monotonic() + seconds
    while True:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: bytes = answer.read()
                return found
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.3)
