"""The alert sensor: each alert is told once when it begins and once when it is over, to the log and to a webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from strandline.jobs.model.settings import AlertSettings, Settings
from strandline.jobs.operate.watch import Alert
from strandline.orchestration import alerts as module
from strandline.orchestration.alerts import Known, News, alert_sensor, failed_checks, send

STALE = Alert("stale", "locations", "staler than its 5 s", "is 'packages' running?")
SILENT = Alert("silent", "packages", "process 7 gives no heartbeat", owner="team:parcels")
LEASE = Alert("lease", "r of t", "its lease has ended", severity="warn")


def test_only_what_is_new_and_what_is_gone_is_news() -> None:
    assert Known().news([STALE, SILENT, STALE], 7).begun == (STALE, SILENT)
    known = Known(((STALE, 3), (LEASE, 4)))
    assert known.news([STALE, SILENT], 7) == News((SILENT,), (LEASE,), ((STALE, 3), (SILENT, 7)))
    assert Known(((STALE, 3),)).news([STALE], 7).lines() == []
    assert Known.read(known.as_text()) == known


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """A server that keeps what is posted to it; below /refuse it refuses."""
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(json.loads(body))
            self.send_response(500 if self.path == "/refuse" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        server.server_close()


def test_the_sensor_tells_it_once_when_it_begins_and_once_when_it_is_over(
    webhook: tuple[str, list[Any]], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, posted = webhook
    sensor = alert_sensor(settings.model_copy(update={"alerts": AlertSettings.model_validate({"webhook_url": url})}))
    cursor: str | None = None
    with dg.DagsterInstance.ephemeral() as instance:
        for found in ([STALE], [STALE], [], []):
            monkeypatch.setattr(module, "alerts", lambda _settings, _now, found=found: list(found))
            context = dg.build_sensor_context(instance=instance, cursor=cursor)
            sensor.evaluate_tick(context)
            cursor = context.cursor
    assert [(len(each["begun"]), each["over"]) for each in posted] == [(1, []), (0, ["stale locations"])]
    assert posted[0]["begun"][0] == STALE.as_json()
    assert "staler than its 5 s" in posted[0]["text"]


def settings_of(url: str, form: str = "json", key: str | None = None) -> AlertSettings:
    return AlertSettings.model_validate({"webhook_url": url, "webhook_form": form, "routing_key": key})


def test_each_form_of_webhook_is_told_what_its_receiver_understands(webhook: tuple[str, list[Any]]) -> None:
    url, posted = webhook
    ticks = [([SILENT], 1_000), ([SILENT], 31_000), ([], 61_000)]

    def told(form: str) -> list[Any]:
        posted.clear()
        known = Known()
        for found, now in ticks:
            news = known.news(found, now)
            send(settings_of(url, form, "key"), news, "lake", now)
            known = Known.of(news)
        return list(posted)

    begun, over = told("slack")
    assert begun == {"text": "silent packages: process 7 gives no heartbeat [team:parcels]"}
    assert over == {"text": "silent packages: over"}
    trigger, resolve = told("pagerduty")
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"]
    assert trigger["routing_key"] == "key"
    assert trigger["payload"]["severity"] == "error"
    assert trigger["payload"]["custom_details"]["owner"] == "team:parcels"
    first, again, last = told("alertmanager")
    assert len(first) == len(again) == len(last) == 1
    assert first[0]["labels"] == again[0]["labels"] == last[0]["labels"]
    assert first[0]["labels"]["alertname"] == "strandline_silent"
    assert (first[0]["startsAt"], again[0]["startsAt"]) == ("1970-01-01T00:00:01+00:00",) * 2
    assert again[0]["endsAt"] > "1970-01-01T00:00:31+00:00", "it fires until it is not told again"
    assert last[0]["endsAt"] == "1970-01-01T00:01:01+00:00"


def test_pagerduty_needs_its_key() -> None:
    with pytest.raises(ValidationError, match="routing_key"):
        settings_of("https://events.example", "pagerduty")


def test_a_webhook_that_refuses_fails_the_tick_and_does_not_show_its_address(webhook: tuple[str, list[Any]]) -> None:
    with pytest.raises(dg.Failure) as found:
        send(settings_of(f"{webhook[0]}/refuse"), News((STALE,), ()), "lake", 0)
    assert "127.0.0.1" not in str(found.value)


def test_a_check_that_failed_last_is_an_alert_and_one_that_passed_since_is_not() -> None:
    @dg.asset
    def rows() -> None: ...

    def checked(passed: bool) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=rows, name="no_nulls")
        def no_nulls() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=passed, description="3 rows are unexpected")

        return no_nulls

    key = dg.AssetCheckKey(dg.AssetKey("rows"), "no_nulls")
    with dg.DagsterInstance.ephemeral() as instance:
        assert failed_checks(instance, [key]) == []
        dg.materialize([rows, checked(False)], instance=instance)
        assert failed_checks(instance, [key]) == [Alert("check", "no_nulls of rows", "3 rows are unexpected")]
        dg.materialize([rows, checked(True)], instance=instance)
        assert failed_checks(instance, [key]) == []


def test_a_check_that_is_planned_again_is_still_the_alert_of_its_last_evaluation() -> None:
    """Also if the run that was to make it dies: nothing is over before it is evaluated."""

    @dg.asset
    def rows() -> None: ...

    def checked(*, dies: bool) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=rows, name="no_nulls")
        def no_nulls() -> dg.AssetCheckResult:
            if dies:
                raise dg.Failure("killed")
            return dg.AssetCheckResult(passed=False, description="3 rows are unexpected")

        return no_nulls

    key = dg.AssetCheckKey(dg.AssetKey("rows"), "no_nulls")
    alert = Alert("check", "no_nulls of rows", "3 rows are unexpected")
    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([rows, checked(dies=False)], instance=instance)
        job = dg.Definitions([rows], asset_checks=[checked(dies=False)]).resolve_implicit_global_asset_job_def()
        planned = instance.create_run_for_job(job_def=job)
        assert instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].run_id == planned.run_id
        assert failed_checks(instance, [key]) == [alert]
        dg.materialize([rows, checked(dies=True)], instance=instance, raise_on_error=False)
        assert failed_checks(instance, [key]) == [alert]
