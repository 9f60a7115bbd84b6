"""What a run tells OpenLineage, and that a catalog that is away, or not even installed, costs no run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.settings import OpenLineageSettings, Settings
from strandline.jobs.run.open_lineage import _Datasets
from strandline.jobs.run.pipeline import drain, observers, opened
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import SettingsError
from strandline.state_store.layout import LakeLayout
from tests.support.http_receiver import Receiver, receiver

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE shops (id VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'shops', PARTITIONS = 1);
CREATE TABLE by_town WITH (OWNER = 'team:shops') AS
    SELECT s.town, SUM(o.qty) AS sold FROM sales o JOIN shops s ON o.shop = s.id GROUP BY s.town;
INSERT INTO shops VALUES ('a', 'Rome');
INSERT INTO sales VALUES ('a', 2), ('a', 3);
"""
BROKEN = """
CREATE TABLE t WITH (ERRORS = 'stop') AS SELECT shop, SUM(CAST(shop AS INT)) AS n FROM sales GROUP BY shop;
"""
TOLD = ["START", "RUNNING", "COMPLETE"]


def told(settings: Settings, catalog: Receiver, **more: Any) -> Settings:
    asked = OpenLineageSettings(url=catalog.url, **{"seconds": 0.0, **more})
    return settings.model_copy(update={"openlineage": asked})


def events(catalog: Receiver, job: str) -> list[dict[str, Any]]:
    found = [each.json() for each in catalog.requests]
    return [each for each in found if each["job"]["name"] == job]


def test_a_run_tells_what_it_reads_and_writes_down_to_columns(settings: Settings, lake: LakeLayout) -> None:
    with receiver() as catalog:
        settings = told(settings, catalog, api_key="secret", namespace="prod")
        list(Interpreter(settings, "shop").run(SHOP))
        drain(settings, "shop", in_driver=True)
        whole, view, table, log = (
            events(catalog, job) for job in ("shop", "shop.by_town", "shop.shops", "shop.shops__log")
        )
        assert {each.path for each in catalog.requests} == {"/api/v1/lineage"}
        assert {each.headers["Authorization"] for each in catalog.requests} == {"Bearer secret"}
    assert [each["eventType"] for each in whole] == ["START", "COMPLETE"]
    assert [each["eventType"] for each in view] == TOLD
    assert {each["job"]["namespace"] for each in view} == {"prod"}
    assert {each["run"]["facets"]["parent"]["run"]["runId"] for each in view} == {whole[0]["run"]["runId"]}
    assert len({each["run"]["runId"] for each in view}) == 1

    running = view[1]
    [output] = running["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(lake.table("by_town")))
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    facets = output["facets"]
    assert [(each["name"], each["type"]) for each in facets["schema"]["fields"]] == [
        ("town", "VARCHAR"),
        ("sold", "BIGINT"),
    ]
    assert facets["ownership"]["owners"][0]["name"] == "team:shops"
    origins = {
        column: [(each["name"], each["field"]) for each in found["inputFields"]]
        for column, found in facets["columnLineage"]["fields"].items()
    }
    assert origins == {
        "town": [(str(lake.table("shops")), "town")],
        "sold": [(str(lake.table("sales")), "qty")],
    }
    assert {each["name"] for each in running["inputs"]} == {str(lake.table(each)) for each in ("sales", "shops")}
    assert running["job"]["facets"]["sql"]["query"].startswith("CREATE TABLE by_town")

    [of_log] = {each["name"] for each in log[1]["inputs"]}
    assert of_log == str(lake.topic("shops"))
    assert {each["name"] for each in table[1]["inputs"]} == {str(lake.table("shops__log"))}


def test_topics_of_kafka_have_their_brokers_name(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": "one:9092,two:9092"})
    settings = settings.model_copy(update={"kafka": kafka})
    stream: Any = SimpleNamespace(definitions=[], lake=lake, settings=settings)
    [read] = _Datasets(stream).read_by(Catalog(lake).get("sales"), "sales", {})
    assert (read.namespace, read.name) == ("kafka://one:9092", "sales")


def test_a_run_that_fails_says_so(settings: Settings, lake: LakeLayout) -> None:
    with receiver() as catalog:
        settings = told(settings, catalog)
        list(Interpreter(settings, "shop").run(SHOP))
        list(Interpreter(settings, "shop").run(BROKEN))
        with pytest.raises(ViewsStopped):
            drain(settings, "shop", in_driver=True)
        last = events(catalog, "shop")[-1]
    assert last["eventType"] == "FAIL"
    assert "'t'" in last["run"]["facets"]["errorMessage"]["message"]


def test_epochs_that_follow_soon_are_told_together(settings: Settings, lake: LakeLayout) -> None:
    with receiver() as catalog:
        settings = told(settings, catalog, seconds=3600)
        list(Interpreter(settings, "shop").run(SHOP))
        interpreter = Interpreter(settings, "shop")
        with (
            observers(settings, "shop") as watching,
            opened(settings, "shop", None, in_driver=True) as (stream, _),
            watching.of(stream),
        ):
            for _number in range(3):
                list(interpreter.run("INSERT INTO sales VALUES ('a', 1);"))
                stream.drain(in_driver=True)
        found = events(catalog, "shop.sales")
    assert [each["eventType"] for each in found] == TOLD
    rows = [each["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for each in found]
    assert sum(rows[1:]) == 5, "two from before, three more: each is told once"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", None])
def test_a_catalog_that_takes_nothing_costs_no_run(
    settings: Settings, lake: LakeLayout, url: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with receiver() as catalog:
        catalog.status = 401
        asked = OpenLineageSettings(url=url or catalog.url)
        settings = settings.model_copy(update={"openlineage": asked})
        list(Interpreter(settings, "shop").run(SHOP))
        assert drain(settings, "shop", in_driver=True).epochs == 1
    if url is None:
        assert "OpenLineage: an event was not taken" in caplog.text


@pytest.mark.parametrize(
    ("settings_of", "module", "extra"),
    [
        ({"openlineage": {"url": "http://127.0.0.1:1"}}, "openlineage", "strandline[openlineage]"),
        ({"tracing": {"endpoint": "http://127.0.0.1:1"}}, "opentelemetry", "strandline[otel]"),
    ],
)
def test_what_is_not_installed_is_said_with_what_to_type(
    settings: Settings, settings_of: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = ("strandline.jobs.run.open_lineage", "strandline.jobs.run.tracing")
    for name in [each for each in sys.modules if each.partition(".")[0] == module or each in loaded]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    asked = type(settings).model_validate({"lake": str(settings.lake), **settings_of})
    with pytest.raises(SettingsError) as caught, observers(asked, "shop"):
        pass
    assert extra in (caught.value.hint or "")
