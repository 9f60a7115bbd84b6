"""The page at `/`: its files and headers, and what makes it safe whatever the lake's values are."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.server.http.page import FILES, INDEX, POLICY

FOLDER = Path("jobs/server/page")
SCRIPTS = [name for name in FILES if name.endswith(".js")]
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextualFragment"
    r"|srcdoc|setHTML|javascript:"
)
"""Whatever makes markup or code of a text."""


class Tags(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def tags() -> list[tuple[str, dict[str, str | None]]]:
    return Tags((FOLDER / INDEX).read_text()).found


@pytest.mark.parametrize("name", FILES)
def test_each_file_comes_with_its_type_and_the_policy(client: TestClient, name: str) -> None:
    found = client.get("/" if name == INDEX else f"/page/{name}")
    assert found.status_code == 200
    assert found.headers["content-type"].startswith(FILES[name])
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.content == (FOLDER / name).read_bytes()


def test_the_folder_holds_what_is_served_and_the_package_takes_it_along() -> None:
    assert {each.name for each in FOLDER.iterdir()} == set(FILES)
    assert '"server/page/*"' in Path("pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fapp.py", "%2e%2e%2fapp.py", "../app.py", "page.js%00", "PAGE.JS"])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


def test_the_policy_leaves_no_way_for_text_to_run() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["trusted-types"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert not re.search(r"unsafe|http|\*", POLICY)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_makes_neither_markup_nor_code_of_text(name: str) -> None:
    assert not SINKS.findall((FOLDER / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_nothing_comes_from_another_host(name: str) -> None:
    text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|(src|href|url)\W{1,3}//", text)


def test_the_page_has_no_script_or_style_of_its_own(tags: list[tuple[str, dict[str, str | None]]]) -> None:
    for tag, attributes in tags:
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
        assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_people_without_a_mouse_or_without_sight_find_everything(tags: list[tuple[str, dict[str, str | None]]]) -> None:
    identities = [about["id"] for _, about in tags if "id" in about]
    assert len(identities) == len(set(identities))
    labelled = {about["for"] for tag, about in tags if tag == "label"}
    assert {about["id"] for tag, about in tags if tag in ("input", "textarea")} == labelled
    named = {about[name] for _, about in tags for name in ("aria-labelledby",) if name in about}
    assert named <= set(identities)
    assert {about.get("role") for _, about in tags} >= {"status", "alert", "log"}
    assert {(about.get("href") or "").removeprefix("#") for tag, about in tags if tag == "a"} <= set(identities)


def test_each_element_that_the_script_asks_for_is_in_the_page(tags: list[tuple[str, dict[str, str | None]]]) -> None:
    identities = {about["id"] for _, about in tags if "id" in about}
    asked = {found for name in SCRIPTS for found in re.findall(r'\bat\("([^"]+)"\)', (FOLDER / name).read_text())}
    assert asked
    assert asked <= identities
