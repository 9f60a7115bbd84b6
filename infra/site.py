"""The site of docs/ as mkdocs builds it: hooks that place pages and keep the site whole in itself.

A page that the nav of mkdocs.yml does not name still has its place: below `design/` in the section Design, any other
one at the end of Guides. So a new page is in the site as soon as it is in the folder. The Markdown of every page is
copied beside its HTML, for readers that are programs: `llms.txt` links to it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_SECTIONS = {"design": "Design", "": "Guides"}
"""{folder of a page that the nav does not name: the section that it goes to}; "" for every other folder."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the nav does not name."""
    nav: list[dict[str, list[Any]]] = config.nav or []
    placed = set(named(nav))
    for page in pages(Path(config.docs_dir)):
        if page not in placed:
            folder = page.partition("/")[0] if "/" in page else ""
            _section(nav, _SECTIONS.get(folder, _SECTIONS[""])).append(page)
    config.nav = nav
    return config


def on_page_content(html: str, **_: object) -> str:
    """Show a bar in the code of a table as itself: GitHub wants an escape there, which Python-Markdown shows."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the Markdown of each page beside its HTML."""
    for page in pages(Path(config.docs_dir)):
        shutil.copyfile(Path(config.docs_dir) / page, Path(config.site_dir) / page)


def pages(folder: Path) -> list[str]:
    """The pages of a folder, relative to it, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))


def named(nav: list[Any]) -> Iterator[str]:
    """The pages of a nav, of all its sections."""
    for entry in nav:
        for each in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(each, list):
                yield from named(each)
            else:
                yield each


def _section(nav: list[dict[str, list[Any]]], title: str) -> list[Any]:
    return next(entry[title] for entry in nav if title in entry)
