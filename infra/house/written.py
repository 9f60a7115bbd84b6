"""The files that are made from the plan and the tree: whether they are current, and writing them."""

from __future__ import annotations

from pathlib import Path

from infra.house.lint import lint_files
from infra.house.page import PAGE, page_text
from infra.house.plan import ROOT


def written() -> dict[Path, str]:
    """Each generated file with the text it should have."""
    return {**lint_files(), PAGE: page_text()}


def stale() -> list[str]:
    """A line for each generated file that is not as it should be."""
    return [
        f"{path.relative_to(ROOT)}: not what the plan and the tree say; run `make house-write`"
        for path, text in written().items()
        if not path.exists() or path.read_text() != text
    ]


def write() -> list[Path]:
    """Write what is not current; the paths that changed."""
    changed = []
    for path, text in written().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path.relative_to(ROOT))
    return changed
