"""The site of docs/: every page has a place, and what GitHub renders mkdocs renders too."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig

from infra.house.plan import ROOT
from infra.site import named, on_config, on_page_content, on_post_build, pages

PAGES = pages(ROOT / "docs")


def _config(docs: Path, nav: list[Any] | None = None, **more: Any) -> MkDocsConfig:
    """The project's configuration over another folder; `nav` in place of its own."""
    # Another theme than the site's: that one writes to the environment when it is loaded.
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), theme={"name": "mkdocs"}, **more)
    if nav is not None:
        config.nav = nav
    return config


def test_every_page_has_one_place_in_the_nav() -> None:
    placed = list(named(on_config(_config(ROOT / "docs")).nav or []))
    assert sorted(placed) == PAGES


def test_a_new_page_is_placed_by_its_folder(tmp_path: Path) -> None:
    for page in ("index.md", "design/0001-new.md", "new.md"):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text("# New\n")
    nav = on_config(_config(tmp_path, [{"Start": ["index.md"]}, {"Guides": []}, {"Design": []}])).nav
    assert nav == [{"Start": ["index.md"]}, {"Guides": ["new.md"]}, {"Design": ["design/0001-new.md"]}]


def test_the_markdown_of_a_page_stands_beside_its_html(tmp_path: Path) -> None:
    docs, site = tmp_path / "docs", tmp_path / "site"
    for folder in (docs / "concepts", site / "concepts"):
        folder.mkdir(parents=True)
    (docs / "concepts" / "epoch.md").write_text("# Epoch\n")
    on_post_build(_config(docs, [], site_dir=str(site)))
    assert (site / "concepts" / "epoch.md").read_text() == "# Epoch\n"


def test_a_bar_in_the_code_of_a_table_is_shown_as_itself() -> None:
    html = "<p><code>a \\| b</code></p><td><code>a \\|\\| b</code></td>"
    assert on_page_content(html) == "<p><code>a \\| b</code></p><td><code>a || b</code></td>"


@pytest.mark.parametrize("page", PAGES)
def test_a_list_is_one_in_both_renderers(page: str) -> None:
    """Python-Markdown asks for an empty line before a list, and for four columns for what stands inside an item."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "", (ROOT / "docs" / page).read_text())
    lines = text.splitlines()
    ran_on = [
        line
        for before, line in pairwise(lines)
        if re.match(r"[-*] |\d+\. ", line) and before.strip() and not re.match(r" |[-*] |\d+\. ", before)
    ]
    nested = [line for line in lines if re.match(r" {1,3}(?:[-*] |\d+\. |\| |```)", line)]
    assert (ran_on, nested) == ([], [])


def test_the_page_for_programs_links_to_pages_that_there_are() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if link not in PAGES] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("design/")])
def test_a_page_of_the_design_says_whether_it_holds(page: str) -> None:
    """Below its title, which begins with its number: current, perhaps with what another page changed, or superseded."""
    title, _, status = (ROOT / "docs" / page).read_text().splitlines()[:3]
    assert title.startswith(f"# {page.removeprefix('design/')[:4]}: ")
    assert re.match(r"Status: (current\b|superseded by \[\d{4}\])", status), status
