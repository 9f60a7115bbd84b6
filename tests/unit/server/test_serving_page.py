"""The page on serving: every request that it shows is answered."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

import pytest
from fastapi.testclient import TestClient

from infra.house.plan import ROOT
from tests.support.served_lake import ServedLake

_PAGE = (ROOT / "docs" / "serving.md").read_text()
_BLOCKS = re.findall(r"```sh\n(.*?)```", _PAGE, flags=re.DOTALL)
_SHOWN = [
    words
    for block in _BLOCKS
    for line in re.findall(r"(?ms)^curl .*?(?=^curl |^#|^\.venv|\Z)", block)
    if "localhost:8088" in (words := " ".join(line.split()))
]


_CUT = "eJy…"
"""The cut of the page, in whose place stands one that the server has pinned."""


def request_of(line: str) -> tuple[str, dict[str, str], str | None]:
    """Path, headers and body of a line of curl. What would go on for ever ends at the first version."""
    words = shlex.split(line, comments=True)
    path = next(each for each in words if "localhost:8088" in each).partition("localhost:8088")[2]
    options = dict(pairwise(words))
    headers = dict([options["-H"].split(": ", 1)]) if "-H" in options else {}
    body = options.get("-d", options.get("--json"))
    if "--json" in options:
        headers["Content-Type"] = "application/json"
    ending = "?up_to=1" if path.endswith("/changes") else "&limit=1" if "/changes?cut=" in path else ""
    return path + ending, headers, None if body is None else body.replace("EMIT CHANGES;", "EMIT CHANGES LIMIT 1;")


def test_there_are_many() -> None:
    assert len(_SHOWN) >= 15


@pytest.fixture(scope="module")
def asked(served: ServedLake, client: TestClient) -> TestClient:
    """The server, with the row that the page asks for by its key."""
    with served.duckdb_engine() as duckdb_engine:
        served.append("visits", [{"id": 7, "town": "Rome", "n": 1}])
        served.refresh(duckdb_engine)
    return client


@pytest.mark.parametrize("line", _SHOWN)
def test_it_is_answered(asked: TestClient, line: str) -> None:
    if _CUT in line:
        line = line.replace(_CUT, asked.post("/v1/cuts", json={"seconds": 60}).json()["cut"])
    path, headers, body = request_of(line)
    found = asked.request("GET" if body is None else "POST", path, content=body, headers=headers)
    assert found.status_code == 200, found.text
    assert found.content
