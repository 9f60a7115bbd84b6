"""`make test` runs a share of the longest tests, in a few turns all of them; by name, whole and at length all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from infra.house.plan import ROOT
from tests.support.shares import FILES, left_out

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


@pytest.fixture(autouse=True)
def _nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However these tests are run themselves."""
    for name in ("STRANDLINE_NIGHTLY", "STRANDLINE_WHOLE", "STRANDLINE_TURN"):
        monkeypatch.delenv(name, raising=False)


def test_a_share_is_one_in_so_many_and_at_least_one(cases: Path) -> None:
    ran = _ran([str(cases.parent)], cases.parent)
    counted = {name: sum(each.startswith(name) for each in ran) for name in ("test_long", "test_few", "test_kills")}
    assert counted == {"test_long": 3, "test_few": 1, "test_kills": 2}
    assert "test_plain" in ran


def test_the_turns_run_all_of_them(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    for turn in range(4):
        monkeypatch.setenv("STRANDLINE_TURN", str(turn))
        ran.append(_ran([str(cases.parent)], cases.parent))
    long = [[each for each in one if each.startswith("test_long")] for one in ran]
    assert sorted(each for one in long for each in one) == [f"test_long[{n}]" for n in range(9)]
    assert {each for one in ran for each in one if each.startswith("test_few")} == {"test_few[0]", "test_few[1]"}


def test_of_a_long_file_some_tests_are_run() -> None:
    ids = [f"tests/spark/test_some.py::test_{n}" for n in range(12)]
    items = [SimpleNamespace(nodeid=each, get_closest_marker=lambda _: None) for each in ids]
    left = left_out(cast("list[pytest.Item]", items))
    assert len(left) == 12 - 12 // FILES["tests/spark/"]
    assert left < {*ids}


def test_the_files_that_share_are_there() -> None:
    assert [each for each in FILES if not (ROOT / each).exists()] == []


def test_what_is_asked_for_by_name_is_run(cases: Path) -> None:
    assert len(_ran([f"{cases}::test_long"], cases.parent)) == 9
    assert len(_ran([str(cases)], cases.parent)) == 18


@pytest.mark.parametrize("variable", ["STRANDLINE_NIGHTLY", "STRANDLINE_WHOLE"])
def test_at_length_and_whole_nothing_is_left_out(cases: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert len(_ran([str(cases.parent)], cases.parent)) == 18
