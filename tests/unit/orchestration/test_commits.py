"""The sensor that tells Dagster what the lake's commits say, over a real lake that another process wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from strandline.jobs.expect.expectations import Approval, write_approval
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration.definitions import build
from strandline.orchestration.sensors import Known
from strandline.orchestration.told_rows import told_every
from strandline.state_store.delta import reader
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.lakes import MadeLake
from tests.unit.orchestration.test_told_checks import PROOF, STATE, drained, proved

__all__ = ["made", "template"]  # fixtures

TOTALS = dg.AssetKey(["projections", "totals"])
OWNED = dg.AssetKey(["projections", "owned"])
NONE_KEPT_ASIDE = dg.AssetKey(["dead_letters", "pages__dead_letters"])


class Daemon:
    """Dagster's daemon, as far as it evaluates this sensor."""

    def __init__(self, made: MadeLake, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance, self.cursor = made.settings, instance, ""

    def tick(self) -> list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation]:
        """Evaluate the sensor once and store its events; what it told."""
        repository = build(self.settings).get_repository_def()
        sensor = repository.get_sensor_def("commits")
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=repository, sensor_name="commits"
        )
        found = sensor.evaluate_tick(context)
        self.cursor = found.cursor or ""
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(found.asset_events)

    def materialized(self) -> dict[dg.AssetKey, dg.AssetMaterialization]:
        """What a tick told of rows."""
        return {each.asset_key: each for each in self.tick() if isinstance(each, dg.AssetMaterialization)}


@pytest.fixture
def daemon(made: MadeLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setattr("strandline.orchestration.sensors._TICK_SECONDS", 60.0)  # a busy machine tells all in one tick
    monkeypatch.setattr("strandline.orchestration.sensors.told_every", lambda _assets: 0.0)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Daemon(made, instance)


def test_what_the_command_line_did_is_on_every_asset_at_the_first_tick(daemon: Daemon, made: MadeLake) -> None:
    found = daemon.materialized()
    head = reader.head(made.lake.table("totals"))
    assert head is not None
    shown = {label: value.value for label, value in found[TOTALS].metadata.items()}
    assert (shown["delta version"], shown["dagster/row_count"]) == (head.version, head.record.rows)
    assert int(str(shown["rows inserted"])) >= head.record.rows
    assert (found[TOTALS].tags or {})["dagster/data_version"] == head.record.digest
    assert {"dagster/column_schema", "version vector"} <= set(shown)
    assert dg.AssetKey(["changelogs", "totals__changelog"]) in found
    assert dg.AssetKey(["logs", "visits__log"]) in found
    assert daemon.materialized() == {}, "nothing happened since"


def test_a_source_without_a_broken_record_has_dead_letters_that_are_told_as_none(
    daemon: Daemon, made: MadeLake
) -> None:
    """There is no table of them yet: its asset said for ever that it was never materialized."""
    found = daemon.materialized()
    assert found[NONE_KEPT_ASIDE].metadata["dagster/row_count"].value == 0
    assert not (made.lake.table("pages__dead_letters") / "_delta_log").exists()
    daemon.cursor = ""
    assert NONE_KEPT_ASIDE not in daemon.materialized(), "also when a run has told it"


def test_the_rows_of_all_commits_since_the_last_are_counted(daemon: Daemon, made: MadeLake) -> None:
    daemon.tick()
    for seconds in (1.0, 2.0):
        made.refresh("totals", [{"page": f"p{seconds}", "n": 1, "seconds": seconds}], inputs=["visits"])
    found = daemon.materialized()
    assert set(found) == {TOTALS, dg.AssetKey(["changelogs", "totals__changelog"])}
    assert found[TOTALS].metadata["rows inserted"].value == 2


def test_a_table_that_never_stands_still_is_told_of_every_half_minute_and_loses_no_row(
    daemon: Daemon, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.orchestration.sensors.told_every", told_every)
    now = [1_000_000.0]
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: now[0])
    monkeypatch.setattr("strandline.orchestration.sensors.time", clock)
    daemon.tick()
    told: list[int] = []
    for number in range(12):
        now[0] += 10
        made.refresh("totals", [{"page": f"p{number}", "n": 1, "seconds": 1.0}], inputs=["visits"])
        found = daemon.materialized()
        told += [int(str(found[TOTALS].metadata["rows inserted"].value))] if TOTALS in found else []
    assert told == [3, 3, 3, 3]


def test_how_often_a_table_is_told_of_keeps_a_day_of_a_large_lake_bounded() -> None:
    assert told_every(20) == told_every(30) < 30
    assert 430 * 86_400 / told_every(430) == pytest.approx(100_000)


def test_the_columns_of_a_definition_are_told_once_and_not_with_each_of_its_materializations(
    daemon: Daemon, made: MadeLake
) -> None:
    assert "dagster/column_schema" in daemon.materialized()[TOTALS].metadata
    made.refresh("totals", [{"page": "z", "n": 1, "seconds": 3.0}], inputs=["visits"])
    assert "dagster/column_schema" not in daemon.materialized()[TOTALS].metadata


def test_a_view_that_reflects_what_it_reads_is_synced_in_whatever_order_they_are_told(
    daemon: Daemon, made: MadeLake
) -> None:
    """`owned` reads `totals`, which is told of a second time after it; then `totals` goes on without it."""
    daemon.tick()
    assert unsynced(daemon) == set()
    daemon.cursor = ""
    again = daemon.instance.get_latest_materialization_event(TOTALS)
    assert again is not None
    assert again.asset_materialization is not None
    daemon.instance.report_runless_asset_event(again.asset_materialization)
    made.visits([(0, "z", 1.0)], {0: 100})
    daemon.tick()
    assert unsynced(daemon) == set(), "events wait for the view: its FRESHNESS says whether too long"
    made.refresh("totals", [{"page": "z", "n": 1, "seconds": 3.0}], inputs=["visits"])
    daemon.tick()
    assert unsynced(daemon) == {OWNED}, "it does not reflect these rows"


def unsynced(daemon: Daemon) -> set[dg.AssetKey]:
    """The assets that Dagster's pages mark as Unsynced."""
    graph = build(daemon.settings).get_repository_def().asset_graph
    resolver = CachingStaleStatusResolver(daemon.instance, graph, LoadingContextForTest(daemon.instance))
    return {key for key in graph.materializable_asset_keys if resolver.get_status(key) is StaleStatus.STALE}


def test_what_a_run_has_told_is_not_told_again_and_what_it_has_not_is(daemon: Daemon, made: MadeLake) -> None:
    """A drain that was killed after its commit: the version before it is the last that was told."""
    head = reader.head(made.lake.table("totals"))
    assert head is not None
    told = {"delta version": head.version}
    daemon.instance.report_runless_asset_event(dg.AssetMaterialization(TOTALS, metadata=told))
    assert TOTALS not in daemon.materialized()
    made.refresh("totals", [{"page": "z", "n": 1, "seconds": 3.0}], inputs=["visits"])
    assert daemon.materialized()[TOTALS].metadata["rows inserted"].value == 1


@pytest.mark.parametrize("job", ["drain_shop", "stream_shop"])
def test_a_pipeline_at_work_is_left_to_its_run_until_that_ends(daemon: Daemon, job: str) -> None:
    run = daemon.instance.create_run_for_job(
        job_def=build(daemon.settings).get_repository_def().get_job(job), status=dg.DagsterRunStatus.STARTED
    )
    assert daemon.tick() == []
    daemon.instance.report_run_failed(run, "killed")
    assert TOTALS in daemon.materialized()


def test_after_a_drain_what_other_runs_have_found_is_told_once_more_but_not_with_every_drain(
    daemon: Daemon, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after one that changed no row of the view: its materialization hides the proof all the same."""
    now = [time.time()]
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: now[0])
    monkeypatch.setattr("strandline.orchestration.sensors.time", clock)
    monkeypatch.setattr("strandline.orchestration.sensors.told_every", lambda _events: 300.0)
    daemon.tick()
    proved(made, daemon.instance)

    def told() -> list[str]:
        return [each.check_name for each in daemon.tick() if isinstance(each, dg.AssetCheckEvaluation)]

    head = reader.head(made.lake.table("totals"))
    assert head is not None
    assert told() == [], "it is shown"
    drained(daemon.instance, head.version)
    assert told() == [PROOF.name, STATE.name]
    assert told() == []
    drained(daemon.instance, head.version)
    assert (told(), told()) == ([], []), "a moment ago"
    now[0] += 300
    assert told() == [PROOF.name, STATE.name], "the drain is not forgotten meanwhile"
    now[0] += 300
    assert told() == []


def test_a_view_that_waits_for_another_says_so_and_later_that_it_goes_on(daemon: Daemon, made: MadeLake) -> None:
    text = """CREATE TABLE totals WITH (EXPECT = '
        - expect_column_max_to_be_between: {column: n, max_value: 2}
          blocking: true
      ') AS SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;"""
    text += """CREATE MATERIALIZED VIEW owned WITH (OWNER = 'team:shop') AS
        SELECT owner, SUM(n) AS n FROM pages JOIN totals ON pages.page = totals.page GROUP BY owner;"""
    assert list(Interpreter(made.settings, "shop").run(text))

    def states() -> list[tuple[dg.AssetKey, bool, str | None]]:
        found = (each for each in daemon.tick() if isinstance(each, dg.AssetCheckEvaluation))
        return [(each.asset_key, each.passed, each.description) for each in found]

    first = states()
    assert {key for key, _, _ in first} >= {TOTALS, OWNED}, "what is materialized is evaluated, or it shows as unknown"
    assert {said for _, _, said in first} == {"it goes on"}
    assert states() == []
    head = reader.head(made.lake.table("totals"))
    assert head is not None
    write_approval(made.lake, "totals", Approval("asked").refusing(head, "asked", "max of n: 3", 0))
    assert states() == [(OWNED, False, "held: it waits for 'totals', which breaks max of n: 3")]
    repository = build(made.settings).get_repository_def()
    context = dg.build_sensor_context(instance=daemon.instance, repository_def=repository)
    repository.get_sensor_def("alerts").evaluate_tick(context)
    (alert,) = (f.alert for f in Known.read(context.cursor).firing if f.alert.kind == "check")
    assert (alert.subject, alert.severity, alert.owner) == ("state of projections/owned", "warn", "team:shop")
    assert alert.hint.startswith("correct what 'totals' is computed from"), "and what to do"
    assert states() == []
    write_approval(made.lake, "totals", Approval("asked").approving(head, "asked"))
    assert states() == [(OWNED, True, "it goes on")]


def test_a_damaged_table_is_told_as_damaged_and_never_as_materialized(daemon: Daemon, made: MadeLake) -> None:
    daemon.tick()
    for file in (made.lake.table("totals") / "_delta_log").iterdir():  # type: ignore[union-attr]
        file.write_text("{")
    found = daemon.tick()
    checks = {each.asset_key: each for each in found if isinstance(each, dg.AssetCheckEvaluation)}
    assert not [each for each in found if isinstance(each, dg.AssetMaterialization)]
    assert (checks[TOTALS].passed, checks[TOTALS].severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert (checks[TOTALS].description or "").startswith("damaged: ")
    assert (checks[OWNED].description or "").startswith("held: it waits for 'totals', which is damaged")


def test_a_tick_tells_no_more_than_the_daemon_stores_in_a_while(
    daemon: Daemon, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.orchestration.sensors._TICK_EVENTS", 2)
    told = [len(daemon.tick()) for _ in range(8)]
    assert max(told) <= 4, "the rows of a table, its changes, and what is said of its state"
    assert not daemon.tick()


def test_a_tick_goes_on_where_the_one_before_had_no_time_left(
    daemon: Daemon, made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that never stands still keeps no other from being told."""
    everything = set(daemon.materialized()) - {NONE_KEPT_ASIDE}  # which has no rows that could be told anew
    monkeypatch.setattr("strandline.orchestration.sensors._TICK_SECONDS", 0.0)
    slow = Daemon(made, daemon.instance)
    monkeypatch.setattr("strandline.orchestration.sensors.LastTold.version", lambda *_: None)
    told = [set(slow.materialized()) for _ in range(len(everything))]
    assert all(len(tables) <= 2 for tables in told), "one table a tick: its rows, and its changes"
    assert set().union(*told) == everything
