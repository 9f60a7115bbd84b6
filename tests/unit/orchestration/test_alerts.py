"""The alert sensor: each alert is told once when it begins and once when it is over, to the log and to a webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from strandline.jobs.model.settings import AlertSettings, Settings, load_settings
from strandline.jobs.operate.watch import Acknowledgement, Alert, acknowledge, acknowledgements, alerts, forget
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration import sensors as module
from strandline.orchestration.sensors import Firing, Known, News, alert_sensor, failed_checks, send
from strandline.state_store.delta.log import now_ms
from strandline.state_store.layout import LakeLayout

STALE = Alert("stale", "locations", "staler than its 5 s", "is 'packages' running?")
SILENT = Alert("silent", "packages", "process 7 gives no heartbeat", owner="team:parcels")
LEASE = Alert("lease", "r of t", "its lease has ended", severity="warn")


def test_only_what_is_new_and_what_is_gone_is_news() -> None:
    assert Known().news([STALE, SILENT, STALE], 7).begun == (STALE, SILENT)
    known = Known((Firing(STALE, 3, "acknowledged by ana"), Firing(LEASE, 4)))
    assert known.news([STALE, SILENT], 7, {STALE.identity: taken(STALE)}) == News(
        (SILENT,), (LEASE,), (Firing(STALE, 3, "acknowledged by ana"), Firing(SILENT, 7))
    )
    assert Known((Firing(STALE, 3),)).news([STALE], 7).lines() == []
    assert Known.read(known.as_text()) == known
    older = json.dumps([{"alert": STALE.as_json(), "since": 3}])
    assert Known.read(older) == Known((Firing(STALE, 3),)), "the cursor of an older version"


def taken(alert: Alert, by: str = "ana", until: int = 10**15) -> Acknowledgement:
    return Acknowledgement(alert.identity, by, 0, until)


def test_an_alert_is_acknowledged_told_again_when_the_time_is_up_and_resolved() -> None:
    told: list[tuple[int, int, int]] = []
    known = Known()
    by_ana, by_bo = {STALE.identity: taken(STALE)}, {STALE.identity: taken(STALE, "bo")}
    ticks: list[tuple[list[Alert], dict[str, Acknowledgement]]] = [
        ([STALE], {}),  # firing
        ([STALE], by_ana),  # acknowledged
        ([STALE], by_ana),  # nothing new
        ([STALE], by_bo),  # another one takes it over
        ([STALE], {}),  # its time is up
        ([STALE], {}),
        ([], {}),  # over
        ([], by_ana),
        ([STALE], {}),  # a new one
    ]
    for found, acknowledged in ticks:
        news = known.news(found, 7, acknowledged)
        told.append((len(news.begun), len(news.taken), len(news.over)))
        known = Known.of(news)
    assert told == [(1, 0, 0), (0, 1, 0), (0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0), (1, 0, 0)]


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
        for tick, found in enumerate(([STALE], [STALE], [STALE], [], [])):
            if tick == 2:
                acknowledge(LakeLayout(settings.lake), STALE.identity, "ana", now_ms(), "on it")
            monkeypatch.setattr(module, "alerts", lambda _settings, _now, found=found: list(found))
            context = dg.build_sensor_context(instance=instance, cursor=cursor)
            sensor.evaluate_tick(context)
            cursor = context.cursor
    assert [(len(each["begun"]), [*each["acknowledged"]], each["over"]) for each in posted] == [
        (1, [], []),
        (0, ["stale locations"], []),
        (0, [], ["stale locations"]),
    ]
    assert posted[1]["text"] == "stale locations: acknowledged by ana: on it"
    assert acknowledgements(LakeLayout(settings.lake), now_ms()) == {}, "what fires again is new"
    assert posted[0]["begun"][0] == STALE.as_json()
    assert "staler than its 5 s" in posted[0]["text"]


def test_an_acknowledgement_ends_with_its_time_and_one_that_does_not_read_is_none(lake: LakeLayout) -> None:
    long = "check " + "x" * 500 + " of a/b"
    acknowledge(lake, long, "ana", 1_000, hours=1)
    acknowledge(lake, "stale v", "bo", 1_000, "restarting", hours=2)
    assert set(acknowledgements(lake, 3_600_000)) == {long, "stale v"}
    assert acknowledgements(lake, 3_601_000) == {
        "stale v": Acknowledgement("stale v", "bo", 1_000, 7_201_000, "restarting")
    }
    acknowledge(lake, "stale v", "ana", 2_000)
    assert acknowledgements(lake, 2_000)["stale v"].by == "ana", "the later one counts"
    (Path(str(lake.acknowledged)) / "broken.json").write_text("{")
    forget(lake, [long, "stale v", "never was"])
    assert acknowledgements(lake, 2_000) == {}


def test_an_acknowledgement_that_is_damaged_is_told_with_its_alert(tmp_path: Path) -> None:
    settings = load_settings(lake=tmp_path / "lake")
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "shop").run("CREATE STREAM s (a INT); CREATE STREAM u (a INT);"))
    (Path(str(lake.catalog)) / "u.json").write_text("{")
    [firing] = alerts(settings, 1_000)
    acknowledge(lake, firing.identity, "ana", 1_000)
    acknowledge(lake, "stale gone", "bo", 1_000)
    for file in Path(str(lake.acknowledged)).iterdir():
        file.write_bytes(file.read_bytes().replace(b'"until"', b'"untim"'))
    assert acknowledgements(lake, 1_000) == {}
    told = alerts(settings, 1_000)
    assert told[0] == firing
    assert sorted((each.what, each.hint.split("/")[0]) for each in told[1:]) == [
        ("an acknowledgement does not read back, and is taken for none", "remove "),
        ("the acknowledgement of 'broken u' does not read back", "type: strandline acknowledge broken u"),
    ]
    acknowledge(lake, firing.identity, "ana", 1_000)
    forget(lake, ["stale gone"])
    assert alerts(settings, 1_000) == [firing]


def test_an_acknowledgement_of_an_earlier_version_has_no_checksum_and_counts(lake: LakeLayout) -> None:
    folder = Path(str(lake.acknowledged))
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"format": 1, "identity": "stale v", "by": "bo", "at": 1, "until": 9, "note": ""}')
    assert acknowledgements(lake, 2) == {"stale v": Acknowledgement("stale v", "bo", 1, 9)}


def settings_of(url: str, form: str = "json", key: str | None = None) -> AlertSettings:
    return AlertSettings.model_validate({"webhook_url": url, "webhook_form": form, "routing_key": key})


def test_each_form_of_webhook_is_told_what_its_receiver_understands(webhook: tuple[str, list[Any]]) -> None:
    url, posted = webhook
    by_ana = {SILENT.identity: taken(SILENT)}
    ticks: list[tuple[list[Alert], int, dict[str, Acknowledgement]]] = [
        ([SILENT], 1_000, {}),
        ([SILENT, SILENT], 31_000, {}),
        ([SILENT], 61_000, by_ana),
        ([], 91_000, by_ana),
    ]

    def told(form: str) -> list[Any]:
        posted.clear()
        known = Known()
        for found, now, acknowledged in ticks:
            news = known.news(found, now, acknowledged)
            send(settings_of(url, form, "key"), news, "lake", now)
            known = Known.of(news)
        return list(posted)

    plain = told("json")
    assert [(len(each["begun"]), each["acknowledged"], each["over"]) for each in plain] == [
        (1, {}, []),
        (0, {"silent packages": "acknowledged by ana"}, []),
        (0, {}, ["silent packages"]),
    ]
    begun, held, over = told("slack")
    assert held == {"text": "silent packages: acknowledged by ana"}
    assert begun == {"text": "silent packages: process 7 gives no heartbeat [team:parcels]"}
    assert over == {"text": "silent packages: over"}
    trigger, acknowledged, resolve = told("pagerduty")
    actions = [each["event_action"] for each in (trigger, acknowledged, resolve)]
    assert actions == ["trigger", "acknowledge", "resolve"]
    assert trigger["dedup_key"] == acknowledged["dedup_key"] == resolve["dedup_key"]
    assert trigger["routing_key"] == "key"
    assert trigger["payload"]["severity"] == "error"
    assert trigger["payload"]["custom_details"]["owner"] == "team:parcels"
    first, again, held, last = told("alertmanager")
    assert [each[0]["annotations"]["acknowledged"] for each in (again, held)] == ["", "acknowledged by ana"]
    assert len(first) == len(again) == len(last) == 1
    assert first[0]["labels"] == again[0]["labels"] == last[0]["labels"]
    assert first[0]["labels"]["alertname"] == "strandline_silent"
    assert (first[0]["startsAt"], again[0]["startsAt"]) == ("1970-01-01T00:00:01+00:00",) * 2
    assert again[0]["endsAt"] > "1970-01-01T00:00:31+00:00", "it fires until it is not told again"
    assert last[0]["endsAt"] == "1970-01-01T00:01:31+00:00"


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


def test_what_was_evaluated_last_is_asked_for_all_checks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake of 200 views has thousands of checks."""
    keys = [dg.AssetCheckKey(dg.AssetKey(f"rows_{number}"), "no_nulls") for number in range(40)]
    with dg.DagsterInstance.ephemeral() as instance:
        for number, key in enumerate(keys):
            said = dg.AssetCheckEvaluation(key.asset_key, key.name, passed=number > 0, metadata={})
            instance.report_runless_asset_event(said)
        monkeypatch.setattr(instance.event_log_storage, "get_asset_check_execution_history", None)
        assert [each.subject for each in failed_checks(instance, keys)] == ["no_nulls of rows_0"]


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
