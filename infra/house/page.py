"""The generated part of the page on the architecture: the floors, and what each room is by its own docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from infra.house.plan import FLOORS, ROOT, folder_of, standing

PAGE = ROOT / "docs" / "architecture.md"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`_(])")


def page_text() -> str:
    """The page as it should be: the prose as it stands, the generated part written again."""
    return _replaced(PAGE.read_text(), "floors", "\n".join(_floors()))


def first_sentence(source: str) -> str:
    """The first sentence of a module's docstring, without its full stop; empty when it has none."""
    text = ast.get_docstring(ast.parse(source)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph)[0].removesuffix(".")


def _floors() -> Iterator[str]:
    rooms = standing()
    yield "| floor | room | what it is |"
    yield "| ---: | --- | --- |"
    for number, floor in reversed(list(enumerate(FLOORS))):
        for room in floor:
            if room in rooms:
                yield f"| {number} | [{_name(room)}](../{_name(room)}) | {_owned(folder_of(room))} |"


def _owned(folder: Path) -> str:
    return _sentence(folder / "__init__.py")


def _sentence(path: Path) -> str:
    return first_sentence(path.read_text()).replace("|", "\\|")


def _name(room: str) -> str:
    return folder_of(room).relative_to(ROOT).as_posix()


def _replaced(text: str, name: str, made: str) -> str:
    start, end = f"<!-- {name}: written by `make house-write` -->", f"<!-- end of {name} -->"
    before, opened, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{PAGE.name} lacks {start} … {end}")
    return f"{before}{start}\n\n{made.strip()}\n\n{end}{after}"
