"""docs/reference is what the code says."""

from __future__ import annotations

import pytest

from tests.support.reference import FOLDER, made

_MADE = made()


@pytest.mark.parametrize("name", _MADE)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == _MADE[name], "python -m tests.support.reference write"


def test_every_scalar_function_has_an_example() -> None:
    lines = [line for line in _MADE["functions.md"].splitlines() if line.startswith("| `")]
    assert len(lines) > 100
    assert [line for line in lines if "|  |" in line] == []


def test_every_command_has_its_part() -> None:
    for command in ("apply", "run", "sql", "verify", "drill", "serve"):
        assert f"## strandline {command}\n" in _MADE["commands.md"]
