"""The files that a page of docs/ shows: blocks with a title, ```sql title="shop.sql"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r'(?ms)^```(\w+) title="([^"\n]+)"\n(.*?)^```$')


@dataclass(frozen=True)
class PageFile:
    """A file of a page.

    Attributes:
        language: of its block: `sql`, `yaml`.
    """

    name: str
    language: str
    text: str


def files_of(page: Path) -> tuple[PageFile, ...]:
    """The files of a page, in their order."""
    return tuple(PageFile(name, language, text) for language, name, text in _BLOCK.findall(page.read_text()))


def write_files(page: Path, folder: Path) -> None:
    """Write the files of a page into a folder, as a reader does."""
    for file in files_of(page):
        (folder / file.name).write_text(file.text)
