"""The order of the floors is held by the linter: this shows that the linter would notice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from infra.house.plan import FACADE, OUTSIDE_JOBS, ROOT, UNSEEN, below, folder_of, not_below, package_of, standing


def _refused(file: str, lines: list[str]) -> list[str]:
    """Which of these lines the linter refuses in that file for what they import."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format", "json"]
    source = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        [*command, "--stdin-filename", file, "-"], input=source, text=True, capture_output=True, cwd=ROOT, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    found = {each["location"]["row"] for each in json.loads(done.stdout)}
    return [line for number, line in enumerate(lines, 1) if number in found]


def _file_in(room: str) -> str:
    return (folder_of(room) / "x.py").relative_to(ROOT).as_posix()


def _imports(room: str) -> list[str]:
    """The ways to import a room."""
    package = package_of(room)
    parent, _, name = package.rpartition(".")
    return [
        f"import {package}",
        f"import {package}.x",
        f"from {package} import x",
        f"from {package}.x import y",
        *([f"from {parent} import {name}"] if parent else []),
    ]


@pytest.mark.parametrize("room", standing())
def test_a_room_imports_what_stands_below_it_and_itself(room: str) -> None:
    """Neither what stands beside or above it, nor tests and tools."""
    against = [line for other in not_below(room) for line in _imports(other)]
    against += ["from tests import oracle", "import infra.house", "from benchmarks import histories"]
    along = [line for other in (*below(room), room) for line in _imports(other)]
    assert _refused(_file_in(room), [*along, *against]) == against


def test_the_rooms_of_the_tree_are_on_the_plan() -> None:
    found = {path.parent.name for path in (ROOT / "jobs").glob("*/__init__.py")}
    assert found == set(standing()) - set(OUTSIDE_JOBS)


@pytest.mark.parametrize(
    "file", [_file_in(room) for room in standing() if room not in (*UNSEEN, *FACADE)] + ["jobs/x.py"]
)
def test_only_orchestration_knows_dagster(file: str) -> None:
    lines = ["import dagster", "from orchestration import translator", "from orchestration.roles import Role"]
    assert _refused(file, [*lines, "import dagster_pipes"]) == lines


def test_the_store_knows_nothing_of_sql() -> None:
    assert _refused("state_store/x.py", ["import sqlglot"]) == ["import sqlglot"]
    assert _refused("jobs/sql/x.py", ["import sqlglot", "from state_store.delta import reader"]) == []
