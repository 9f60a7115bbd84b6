"""The results of checks that Dagster shows of a view while its rows change: asked of Dagster as its pages ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events import StepMaterializationData
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration import told_checks
from strandline.orchestration.definitions import build
from strandline.orchestration.told_checks import FOUND_AT, CheapChecks, ToldChecks
from strandline.orchestration.translator import Translator
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.lakes import MadeLake

__all__ = ["made", "template"]  # fixtures

TOTALS = dg.AssetKey(["projections", "totals"])
PROOF = dg.AssetCheckKey(TOTALS, "digest")
STATE = dg.AssetCheckKey(TOTALS, "state")
FRESHNESS = dg.AssetCheckKey(TOTALS, "freshness")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def materialize(instance: dg.DagsterInstance, version: int) -> None:
    """As a stream does: outside of runs."""
    instance.report_runless_asset_event(dg.AssetMaterialization(TOTALS, metadata={"delta version": version}))


def proved(made: MadeLake, instance: dg.DagsterInstance) -> None:
    """A run of Dagster's that makes a proof."""
    job = build(made.settings).get_repository_def().get_implicit_global_asset_job_def()
    chosen = job.get_subset(asset_selection=set(), asset_check_selection={PROOF})
    assert chosen.execute_in_process(instance=instance).success


def shown(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """What Dagster's pages show of a check: None is *Not evaluated*."""

    async def found() -> dg.AssetCheckEvaluation | None:
        context = LoadingContextForTest(instance)
        record = await AssetCheckExecutionRecord.gen(context, key)
        if record is None or not await record.targets_latest_materialization(context):
            return None
        return record.evaluation

    return asyncio.run(found())


def tell(instance: dg.DagsterInstance, told: ToldChecks, made: told_checks.Made) -> list[str]:
    """Tell of the view's checks beside its materialization; the names of those that are told."""
    events = list(told.beside([TOTALS], made))
    for event in events:
        instance.report_runless_asset_event(event)
    return [event.check_name for event in events]


def test_a_nightly_proof_stays_on_the_page_of_a_view_that_changes_and_says_when_it_was_made(
    made: MadeLake, instance: dg.DagsterInstance
) -> None:
    told = ToldChecks(instance, {TOTALS: [PROOF, STATE]})
    materialize(instance, 1)
    assert tell(instance, told, {}) == [], "it was never made, and nothing is made up"
    proved(made, instance)
    found = shown(instance, PROOF)
    assert found is not None
    assert found.passed
    materialize(instance, 2)
    assert shown(instance, PROOF) is None, "what Dagster does by itself"
    assert tell(instance, told, {}) == ["digest"]
    again = shown(instance, PROOF)
    assert again is not None
    assert again.passed
    assert f"UTC, and not looked at since: {found.description}" in (again.description or "")
    assert FOUND_AT in again.metadata
    for version in range(3, 6):
        materialize(instance, version)
        assert tell(instance, told, {}) == [], "once for each time that it was made"
        assert shown(instance, PROOF) == again
    proved(made, instance)
    materialize(instance, 6)
    assert tell(instance, told, {}) == ["digest"]
    newer = shown(instance, PROOF)
    assert newer is not None
    assert newer.metadata[FOUND_AT] != again.metadata[FOUND_AT]


def drained(instance: dg.DagsterInstance, number: int) -> None:
    """A run that materializes the view, as a drain does."""

    run = instance.add_run(dg.DagsterRun("drain_shop", status=dg.DagsterRunStatus.SUCCESS))
    rows = StepMaterializationData(dg.AssetMaterialization(TOTALS, metadata={"delta version": number}))
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION.value
    instance.report_dagster_event(dg.DagsterEvent(kind, run.job_name, event_specific_data=rows), run.run_id)
    time.sleep(1.05)  # Dagster stores the moments of checks in whole seconds: none is of this one


def test_a_proof_stays_on_the_page_after_a_drain(made: MadeLake, instance: dg.DagsterInstance) -> None:
    told = ToldChecks(instance, {TOTALS: [PROOF, STATE]})

    def tell_hidden() -> list[str]:
        events = list(told.hidden(TOTALS))
        for event in events:
            instance.report_runless_asset_event(event)
        return [event.check_name for event in events]

    drained(instance, 1)
    assert tell_hidden() == [], "it was never made, and nothing is made up"
    proved(made, instance)
    assert tell_hidden() == [], "it is shown"
    moments = set()
    for number in (2, 3):
        drained(instance, number)
        assert shown(instance, PROOF) is None, "what Dagster does by itself"
        assert tell_hidden() == ["digest"]
        again = shown(instance, PROOF)
        assert again is not None
        assert again.passed
        moments.add(again.metadata[FOUND_AT])
        assert tell_hidden() == [], "once for each drain"
    assert len(moments) == 1, "it says when it was made, not when it was told"
    materialize(instance, 4)
    assert tell_hidden() == [], "beside a stream that is told with its rows"


def test_a_check_that_a_run_is_about_to_make_is_left_to_it_and_one_whose_run_died_is_told(
    made: MadeLake, instance: dg.DagsterInstance
) -> None:
    told = ToldChecks(instance, {TOTALS: [PROOF]})
    proved(made, instance)
    job = build(made.settings).get_repository_def().get_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job.get_subset(asset_selection=set(), asset_check_selection={PROOF}), status=dg.DagsterRunStatus.STARTED
    )
    planned = AssetCheckEvaluationPlanned(asset_key=TOTALS, check_name=PROOF.name)
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value
    instance.report_dagster_event(dg.DagsterEvent(kind, run.job_name, event_specific_data=planned), run.run_id)
    materialize(instance, 2)
    assert tell(instance, told, {}) == []
    instance.report_run_failed(run, "killed")
    materialize(instance, 3)
    assert tell(instance, told, {}) == ["digest"]
    found = shown(instance, PROOF)
    assert found is not None
    assert found.passed


def test_a_verdict_that_stays_is_told_every_five_minutes_and_another_one_at_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ToldChecks(instance, {TOTALS: [FRESHNESS]})

    def stale(seconds: float, passed: bool) -> told_checks.Made:
        found = dg.AssetCheckEvaluation(TOTALS, FRESHNESS.name, passed, description=f"stale for {seconds:g} s of 5 s")
        return {FRESHNESS: found}

    assert tell(instance, told, stale(0.5, True)) == ["freshness"]
    assert tell(instance, told, stale(1.75, True)) == []
    assert tell(instance, told, stale(7, False)) == ["freshness"]
    monkeypatch.setattr(told_checks, "_AGAIN_SECONDS", 0.0)
    assert tell(instance, told, stale(8, False)) == ["freshness"]


def test_expectations_are_made_beside_a_stream_by_a_thread_that_rests(
    made: MadeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """CREATE TABLE totals WITH (EXPECT = '
        - expect_column_max_to_be_between: {column: n, max_value: 2}
          blocking: true
      ') AS SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;"""
    assert list(Interpreter(made.settings, "shop").run(text))
    catalog = Catalog(made.lake)
    translator = Translator(catalog.definitions(), made.lake)
    cheap = CheapChecks(catalog.definitions(), translator, made.settings)
    monkeypatch.setattr(told_checks, "_REST", 1e9)
    health = {"state", "freshness", "dead_letters", "late_rows"}
    assert {check.name for check in cheap.of([TOTALS])} == health, "they are not waited for"
    for thread in threading.enumerate():
        if thread.name == "expectations":
            thread.join(PATIENCE_SECONDS)
    found = cheap.of([])
    assert [check.name for check in found] == ["expect_column_max_to_be_between__n"]
    (evaluation,) = found.values()
    assert evaluation.metadata["delta version"].value
    assert not evaluation.blocking, "it is shown: the stream holds what reads the view by itself"
    cheap.of([TOTALS])
    assert not [thread for thread in threading.enumerate() if thread.name == "expectations"], "they rest"
