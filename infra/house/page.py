"""The table of rooms in docs/architecture.md: the floors, and what each room is by its own docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from infra.house.plan import FLOORS, ROOT, folder_of, standing

PAGE = ROOT / "docs" / "architecture.md"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`_(])")


def stale() -> list[str]:
    """A line if the page is not as it should be; else none."""
    if PAGE.read_text() == _page_text():
        return []
    return [f"{PAGE.relative_to(ROOT)}: not what the plan and the tree say; run `make house-write`"]


def write() -> None:
    """Write the table anew; the prose around it stays."""
    PAGE.write_text(_page_text())


def first_sentence(source: str) -> str:
    """The first sentence of a module's docstring, without its full stop; empty when it has none."""
    text = ast.get_docstring(ast.parse(source)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph)[0].removesuffix(".")


def _page_text() -> str:
    text = PAGE.read_text()
    start, end = "<!-- floors: written by `make house-write` -->", "<!-- end of floors -->"
    before, opened, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{PAGE.name} lacks {start} … {end}")
    table = "\n".join(_floors())
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def _floors() -> Iterator[str]:
    rooms = standing()
    yield "| floor | room | what it is |"
    yield "| ---: | --- | --- |"
    for number, floor in reversed(list(enumerate(FLOORS))):
        for room in floor:
            if room in rooms:
                folder = folder_of(room)
                owned = first_sentence((folder / "__init__.py").read_text()).replace("|", "\\|")
                name = folder.relative_to(ROOT).as_posix()
                yield f"| {number} | `{name}` | {owned} |"
