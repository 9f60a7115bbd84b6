"""The dashboard and the alert rules of infra/observability: every query reads metrics and labels that a real scrape of
a pipeline and of a server has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import promql_parser as promql
import pytest
import yaml
from fastapi.testclient import TestClient

from infra.house.plan import ROOT
from infra.ports import free_port
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import MetricsSettings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.lakes import s3_settings
from tests.support.s3_server import S3Server
from tests.support.scraped import Scrape, parsed, scrape
from tests.support.waiting import wait_until

FOLDER = ROOT / "infra" / "observability"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
SCRAPES: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
OF_PROMETHEUS = {"instance", "job"}
"""The labels that Prometheus gives to whatever it scrapes."""
DEFINITIONS = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop WITH (EXPECT = '[{expect_table_row_count_to_be_between: {min_value: 1}, blocking: true}]')
    AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE TABLE again AS SELECT shop, n FROM by_shop;
CREATE TABLE partly WITH (STATE = 'partial') AS SELECT shop, SUM(qty) AS q FROM sales GROUP BY shop;
"""


@dataclass(frozen=True)
class Query:
    """One query of a panel or of a rule."""

    where: str
    text: str

    def __str__(self) -> str:
        return self.where


def _queries() -> Iterator[Query]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Query(panel["title"], target["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert found is not None
            yield Query(f"${variable['name']}", f"sum by ({found[2]}) ({found[1]})")
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield Query(rule["alert"], rule["expr"])


QUERIES = tuple(_queries())


@pytest.fixture(scope="module")
def of_s3(s3_server: S3Server) -> Scrape:
    """The samples of a pipeline whose lake lies in an object store."""
    settings = s3_settings(s3_server, metrics=MetricsSettings(port=free_port()))
    list(Interpreter(settings, "shop").run(DEFINITIONS + "INSERT INTO sales VALUES ('a', 1);"))
    port, found = settings.metrics.port or 0, list[Scrape]()
    drain(settings, "shop", watch=lambda _: found.append(scrape(port)), in_driver=True)
    return found[0]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, of_s3: Scrape) -> Scrape:
    """All samples of a pipeline's and a server's `/metrics`, at work on one lake, and those of an object store."""
    folder = tmp_path_factory.mktemp("observed")
    settings = load_settings(lake=folder / "lake", metrics=MetricsSettings(port=free_port()))
    list(Interpreter(settings, "shop").run(DEFINITIONS + "INSERT INTO sales VALUES ('a', 1);"))
    drain(settings, "shop", in_driver=True)  # what follows is taken in as changes
    list(Interpreter(settings, "shop").run("INSERT INTO sales VALUES ('b', 2);"))
    open_log(settings, LakeLayout(settings.lake)).produce("sales", [Record(None, b"{", 0)])
    found: list[Scrape] = []

    def look(_batch: MicroBatch) -> None:
        port = settings.metrics.port
        assert port is not None
        # Gauges are as of the last heartbeat, and those have a clock of their own.
        wait_until(lambda: "strandline_refresh_seconds_a_day" in scrape(port), "no heartbeat after the refresh")
        found.append(scrape(port))

    with patch("strandline.jobs.run.metrics.LEAST_RUN_SECONDS", 0.0):
        drain(settings, "shop", watch=look, in_driver=True)
    [of_pipeline] = found
    with TestClient(application(settings, ServerOptions(folder / "server", queries=1)), "http://127.0.0.1") as client:
        for path in ("/v1/views/by_shop/rows/a", "/v1/views/partly/rows/a"):
            wait_until(lambda path=path: client.get(path).status_code == 200, "no row")  # type: ignore[misc]
        wait_until(lambda: 'replica_version{view="by_shop"}' in client.get("/metrics").text, "no replica")
        of_server = parsed(client.get("/metrics").text)
    return {**of_s3, **of_pipeline, **of_server}


def _selectors(node: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The vector selectors of a query, each with the labels that the aggregations around it group by."""
    match node:
        case promql.VectorSelector():
            yield node, ()
        case promql.MatrixSelector():
            yield node.vector_selector, ()
        case promql.AggregateExpr():
            labels = tuple(node.modifier.labels) if node.modifier is not None else ()
            for selector, others in _selectors(node.expr):
                yield selector, (*others, *labels)
        case promql.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql.Call():
            for each in node.args:
                yield from _selectors(each)
        case promql.ParenExpr() | promql.UnaryExpr():
            yield from _selectors(node.expr)
        case promql.NumberLiteral() | promql.StringLiteral():
            return
        case _:
            raise AssertionError(f"this test knows no {type(node).__name__}")


def _parsed(query: str) -> Any:
    return promql.parse(query.replace("$__rate_interval", "5m").replace('"$pipeline"', '".*"'))


def _missing(query: str, found: Scrape) -> list[str]:
    """What a query asks for, and a scrape does not have."""
    wrong = []
    selectors = list(_selectors(_parsed(query)))
    assert selectors, "it reads no metric"
    for selector, grouped in selectors:
        samples = found.get(selector.name, [])
        if not samples:
            wrong.append(selector.name)
            continue
        known = {label for labels, _ in samples for label in labels} | OF_PROMETHEUS
        asked = (*(each.name for each in selector.matchers.matchers), *grouped)
        wrong += [f"{selector.name}.{label}" for label in asked if label not in known]
        wrong += _unmatched(selector, samples)
    return wrong


def _unmatched(selector: Any, samples: list[tuple[Mapping[str, str], float]]) -> list[str]:
    """Matchers for one value that no sample has."""
    for each in selector.matchers.matchers:
        if each.op == promql.MatchOp.Equal and not any(labels.get(each.name) == each.value for labels, _ in samples):
            return [f'{selector.name}{{{each.name}="{each.value}"}}']
    return []


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_reads_what_a_scrape_has(query: Query, scraped: Scrape) -> None:
    assert _missing(query.text, scraped) == []


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("rate(strandline_epoch_total[5m])", ["strandline_epoch_total"]),
        ("sum by (tabel) (strandline_table_rows)", ["strandline_table_rows.tabel"]),
        ('strandline_epochs_total{modus="full"}', ["strandline_epochs_total.modus"]),
        ('strandline_step_seconds_sum{step="compute"}', ['strandline_step_seconds_sum{step="compute"}']),
    ],
)
def test_the_check_sees_what_is_not_there(query: str, wrong: list[str], scraped: Scrape) -> None:
    assert _missing(query, scraped)[:1] == wrong


def test_every_metric_of_a_pipeline_is_on_the_dashboard_and_the_page(scraped: Scrape) -> None:
    """What nobody plots nobody keeps."""
    shown = {_base(selector.name) for query in QUERIES for selector, _ in _selectors(_parsed(query.text))}
    of_pipelines = {_base(name) for name, samples in scraped.items() if "pipeline" in samples[0][0]}
    assert of_pipelines - shown == set()
    documented = set(re.findall(r"`(strandline_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    ours = {_base(name) for name in scraped if name.startswith("strandline_")}
    assert documented == ours


def _base(name: str) -> str:
    """The name of a histogram, or of anything else as it is."""
    return re.sub(r"_(bucket|count|sum)$", "", name)


def test_names_end_as_prometheus_wants(scraped: Scrape) -> None:
    """A counter in _total, a time in seconds, a size in bytes; nothing in milliseconds or megabytes."""
    for name in scraped:
        assert not re.search(r"_(ms|millis|milliseconds|minutes|mb|kb)(_|$)", name), name


def test_rules_and_panels_are_whole() -> None:
    names = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 10
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warn", "error")
            assert set(rule["annotations"]) == {"summary", "hint"}
            # The labels that its text names are those that are left of its query.
            named = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
            left = {label for _, grouped in _selectors(_parsed(rule["expr"])) for label in grouped}
            assert named <= left, rule["alert"]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(places) == len(set(places)), "no panel lies on another"


def test_prometheus_scrapes_what_the_rules_speak_of() -> None:
    assert [Path(each).name for each in SCRAPES["rule_files"]] == ["alerts.yaml"]
    assert {each["job_name"] for each in SCRAPES["scrape_configs"]} == {"strandline-pipeline", "strandline-server"}
