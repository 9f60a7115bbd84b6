"""docs/errors.md has an entry for every code of the product's errors, with the action that the code asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from infra.house.plan import ROOT, TOPS
from strandline.state_store.errors import StrandlineError

_PAGE = (ROOT / "docs" / "errors.md").read_text()
_ENTRIES: dict[str, str] = dict(re.findall(r"(?ms)^### (\S+)\n(.*?)(?=^##|\Z)", _PAGE))
_SHORTEST = 40
"""Letters of an entry that says what the error means and what to type."""


def _declaring() -> Iterator[str]:
    """The modules of the product that declare a code."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            if re.search(r'(?m)^    code(?:: str)? = "', path.read_text()):
                yield ".".join(["strandline", *path.relative_to(ROOT).with_suffix("").parts])


def _classes(root: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


def _actions() -> dict[str, str]:
    """{code: action} of all errors that are raised. A base without a dot in its code never is, but for `internal`."""
    for module in _declaring():
        import_module(module)
    found = {
        cls.code: cls.action.value for cls in _classes(StrandlineError) if cls.__module__.startswith("strandline.")
    }
    return {code: action for code, action in found.items() if "." in code or code == "internal"}


def test_every_code_has_its_entry_and_no_entry_lacks_its_code() -> None:
    assert sorted(_ENTRIES) == sorted(_actions())


def test_the_tree_is_found() -> None:
    """By one code of each file that declares some, so that the comparison above is not one of nothing."""
    assert {"store.corrupt", "sql.syntax", "serve.busy", "publish.never", "postgres.refused"} <= set(_actions())


@pytest.mark.parametrize("code", sorted(_ENTRIES))
def test_an_entry_says_the_action_and_what_to_do(code: str) -> None:
    said = re.match(r"\*(.+?)\.\* (.+)", _ENTRIES[code].strip(), flags=re.DOTALL)
    assert said is not None, code
    # The error of several views has the action of the first one's.
    assert said[1] == ("the first view's action" if code == "pipeline.views_stopped" else _actions()[code])
    assert len(said[2]) > _SHORTEST


def test_no_base_is_raised_itself() -> None:
    """So their codes need no entry."""
    bases = "|".join(
        sorted(cls.__name__ for cls in _classes(StrandlineError) if "." not in cls.code and cls.code != "internal")
    )
    raised = [
        f"{path}: {line.strip()}"
        for top in TOPS
        for path in sorted((ROOT / top).rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(rf"raise (?:{bases})\(", line)
    ]
    assert raised == []
