"""The spans of a run: a round with its steps, of the times that were taken, and nothing of rounds that did nothing."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from strandline.jobs.model.settings import Settings, TracingSettings
from strandline.jobs.run.pipeline import Observers, drain, opened
from strandline.jobs.run.tracing import Tracing
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.http_receiver import receiver

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE TABLE bad WITH (ERRORS = 'stop') AS SELECT shop, SUM(CAST(shop AS INT)) AS n FROM sales GROUP BY shop;
INSERT INTO sales VALUES ('1', 2), ('2', 3);
"""


def traced(settings: Settings, rounds: Sequence[str]) -> list[ReadableSpan]:
    """The spans of a run that drains after each of these statements."""
    exporter = InMemorySpanExporter()
    watching = Observers([Tracing("shop", SimpleSpanProcessor(exporter))])
    interpreter = Interpreter(settings, "shop")
    with opened(settings, "shop", None, in_driver=True) as (stream, _), watching.of(stream):
        for statement in rounds:
            list(interpreter.run(statement))
            stream.drain(in_driver=True)
    return list(exporter.get_finished_spans())


def test_a_round_has_its_steps_below_it(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    spans = traced(settings, [""])
    [root] = [each for each in spans if each.name == "round"]
    assert root.parent is None
    assert root.attributes is not None
    assert root.attributes["strandline.events"] == 2
    by_name = {each.name: each for each in spans}
    assert {"ingest", "refresh by_shop", "plan", "maintain"} <= set(by_name)
    for each in spans:
        assert each.context is not None
        assert root.context is not None
        assert each.context.trace_id == root.context.trace_id
        assert each.start_time is not None
        assert each.end_time is not None
        assert each.start_time <= each.end_time
    refresh = by_name["refresh by_shop"]
    assert refresh.attributes is not None
    assert refresh.attributes["strandline.rows.inserted"] == 2
    below = [each for each in spans if each.parent is not None and each.parent == refresh.context]
    assert [each.name for each in below] == ["plan", "maintain"]
    assert root.start_time is not None
    assert refresh.start_time is not None
    assert root.start_time <= refresh.start_time


def test_a_round_that_commits_nothing_leaves_no_span(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    assert len([each for each in traced(settings, ["", "", ""]) if each.name == "round"]) == 1


def test_a_view_that_fails_is_an_error_of_its_round(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    spans = traced(settings, ["", "INSERT INTO sales VALUES ('x', 1);"])
    last = [each for each in spans if each.name == "round"][-1]
    assert not last.status.is_ok
    assert [(each.attributes or {})["strandline.table"] for each in last.events] == ["bad"]


def test_spans_reach_a_collector(settings: Settings, lake: LakeLayout) -> None:
    with receiver() as collector:
        settings = settings.model_copy(update={"tracing": TracingSettings(endpoint=f"{collector.url}/")})
        list(Interpreter(settings, "shop").run(SHOP))
        drain(settings, "shop", in_driver=True)
        assert {each.path for each in collector.requests} == {"/v1/traces"}
        sent = b"".join(each.body for each in collector.requests)
    assert b"refresh by_shop" in sent
    assert b"strandline.pipeline" in sent


def test_a_collector_that_is_away_costs_no_run(settings: Settings, lake: LakeLayout) -> None:
    settings = settings.model_copy(update={"tracing": TracingSettings(endpoint="http://127.0.0.1:1")})
    list(Interpreter(settings, "shop").run(SHOP))
    assert drain(settings, "shop", in_driver=True).epochs == 1
