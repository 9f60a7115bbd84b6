"""GET /v1/views/{view}/data-docs: the page on expectations, for whoever may read the view; a browser is asked."""

from __future__ import annotations

import base64
from pathlib import Path

from fastapi.testclient import TestClient

from strandline.jobs.expect.expectations import Verdict, write_docs
from strandline.jobs.model.definitions import Expectation
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, make_token
from tests.support.served_lake import ServedLake
from tests.unit.server.conftest import LIMITS

PATH = "/v1/views/by_town/data-docs"


def test_there_is_no_page_before_the_expectations_were_validated(client: TestClient, served: ServedLake) -> None:
    assert client.get("/v1/views/nowhere/data-docs").status_code == 404
    answer = client.get(PATH.replace("by_town", "by_id"))
    assert (answer.status_code, answer.json()["code"]) == (404, "sql.unknown_name")
    expectation = Expectation("expect_table_row_count_to_be_between", {"min_value": 1})
    write_docs(served.lake, "by_town", 1, [(expectation, Verdict(expectation.name, True, "observed: 3"))])
    answer = client.get(PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Version 1: 1 passed" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_browser_gives_the_token_as_a_password(served: ServedLake, tmp_path: Path) -> None:
    write_docs(served.lake, "by_town", 1, [])
    token = make_token(tmp_path / "tokens.json", "towns", ("read:by_town",), None)
    options = ServerOptions(tmp_path / "server", tokens=tmp_path / "tokens.json", limits=LIMITS, queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1") as guarded:
        asked = guarded.get(PATH)
        assert asked.status_code == 401
        assert asked.headers["www-authenticate"].startswith("Basic realm=")
        assert guarded.get("/v1/views").headers["www-authenticate"] == "Bearer", "a script is not asked"
        for wrong in (f"x:{token}x", token, "x:"):
            header = {"authorization": f"Basic {base64.b64encode(wrong.encode()).decode()}"}
            assert guarded.get(PATH, headers=header).status_code == 401
        assert guarded.get(PATH, headers={"authorization": "Basic =!"}).status_code == 401
        assert guarded.get(PATH, auth=("anybody", token)).status_code == 200
        assert guarded.get(PATH.replace("by_town", "by_id"), auth=("anybody", token)).status_code == 403
