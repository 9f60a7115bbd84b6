"""The generated parts of the page on the architecture: the floors, and what every file owns by its own docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from infra.house.plan import FLOORS, ROOT, folder_of, standing

PAGE = ROOT / "docs" / "architecture.md"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`_(])")


def page_text() -> str:
    """The page as it should be: the prose as it stands, the generated parts anew."""
    text = PAGE.read_text()
    for name, lines in (("floors", _floors()), ("files", _files())):
        text = _replaced(text, name, "\n".join(lines))
    return text


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
                yield f"| {number} | [{_name(room)}](#{_name(room).replace('/', '')}) | {_owned(folder_of(room))} |"


def _files() -> Iterator[str]:
    for room in standing():
        folder = folder_of(room)
        yield f"### `{_name(room)}`"
        yield ""
        yield "| file | what it owns |"
        yield "| --- | --- |"
        yield from _rows(folder, folder)
        yield ""


def _rows(folder: Path, room: Path) -> Iterator[str]:
    """The files of a folder, then each folder in it with its own."""
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield _row(path, path, room)
    rooms = {folder_of(each) for each in standing()}
    for inner in sorted({path.parent for path in folder.glob("*/__init__.py")} - rooms):
        yield _row(inner, inner / "__init__.py", room)
        yield from _rows(inner, room)


def _row(path: Path, told_by: Path, room: Path) -> str:
    name = path.relative_to(room).as_posix() + ("/" if path.is_dir() else "")
    shown = f"**{name}**" if path.is_dir() else name
    return f"| [{shown}](../{path.relative_to(ROOT).as_posix()}) | {_sentence(told_by)} |"


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
