"""Names that mean something to HTTP as well: they are names of views like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.app import application
from strandline.jobs.server.http.answers import ARROW
from strandline.jobs.server.state.access import ServerOptions
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM `訪=,` (id BIGINT KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE `rows` WITH (STATE = 'partial') AS SELECT town, COUNT(*) AS visits FROM `訪=,` GROUP BY town;
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    served = ServedLake(load_settings(lake=tmp_path_factory.mktemp("served") / "lake"), DEFINITIONS)
    served.append("訪=,", [{"id": 1, "town": "Rome"}])
    app = application(served.settings, ServerOptions(tmp_path_factory.mktemp("server"), queries=1))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found


def test_a_view_that_is_called_rows_has_rows(client: TestClient) -> None:
    found = client.get("/v1/views/rows/rows/Rome")
    assert (found.status_code, found.json()["row"]) == (200, {"town": "Rome", "visits": 1})


def test_a_header_names_a_table_that_latin_1_cannot_spell(client: TestClient) -> None:
    found = client.post("/v1/query", json={"sql": "SELECT town FROM `訪=,`"}, headers={"accept": ARROW})
    assert found.status_code == 200
    assert found.headers["strandline-versions"] == "%E8%A8%AA%3D%2C=1"
