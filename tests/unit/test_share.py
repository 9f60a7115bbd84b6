"""`make test` runs a share of the cases of a long test, at least one and the same each time; nightly runs all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.house.plan import ROOT

CASES = """
import pytest

@pytest.mark.share(4)
@pytest.mark.parametrize("n", range(9))
def test_long(n): pass

@pytest.mark.share(4)
@pytest.mark.parametrize("n", range(2))
def test_few(n): pass

@pytest.mark.kill
@pytest.mark.parametrize("n", range(6))
def test_kills(n): pass

def test_plain(): pass
"""


def _ran(arguments: list[str], folder: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-c", str(ROOT / "pyproject.toml")]
    plugin = ["-p", "tests.conftest", "--rootdir", str(folder)]
    made = subprocess.run([*command, *plugin, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.rpartition("::")[2] for line in made.stdout.splitlines() if "::" in line]


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    file = tmp_path / "test_cases.py"
    file.write_text(CASES)
    return file


def test_a_share_is_one_in_so_many_and_at_least_one(cases: Path) -> None:
    ran = _ran([str(cases)], cases.parent)
    counted = {name: sum(each.startswith(name) for each in ran) for name in ("test_long", "test_few", "test_kills")}
    assert counted == {"test_long": 2, "test_few": 1, "test_kills": 2}
    assert "test_plain" in ran


def test_what_is_asked_for_by_name_is_run(cases: Path) -> None:
    assert len(_ran([f"{cases}::test_long"], cases.parent)) == 9


def test_nightly_runs_all(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_NIGHTLY", "1")
    assert len(_ran([str(cases)], cases.parent)) == 18
