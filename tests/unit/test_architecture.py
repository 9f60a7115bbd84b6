"""The page on the architecture: every path in it leads somewhere."""

from __future__ import annotations

import re

import pytest

from infra.house.page import PAGE
from infra.house.plan import ROOT

_TEXT = PAGE.read_text()
_ROWS = [
    line.strip("|").rsplit("|", 1)
    for line in _TEXT.partition("## Where is …?")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ")
][2:]


def test_thirty_behaviours_have_a_place() -> None:
    assert len(_ROWS) >= 30
    assert len({what for what, _ in _ROWS}) >= 30


@pytest.mark.parametrize(("what", "where"), _ROWS)
def test_each_is_a_file(what: str, where: str) -> None:
    assert (ROOT / where.strip().strip("`")).is_file(), what


def test_every_path_and_link_leads_somewhere() -> None:
    paths = re.findall(r"\b((?:jobs|state_store|orchestration|infra|tests)/[\w/]+(?:\.\w+)?)", _TEXT)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", _TEXT) if "://" not in link]
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
