"""Checks, compaction and drills of a real lake, executed by Dagster."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from strandline.jobs.model.settings import BackupSettings, RetentionSettings, ServerSettings
from strandline.jobs.operate.recovery.drill_history import history
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration.assets import data_docs
from strandline.orchestration.definitions import build
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.lakes import MadeLake

__all__ = ["made", "template"]  # fixtures

VIEW = """CREATE TABLE totals WITH (FRESHNESS = '5 seconds', EXPECT = '
    - expect_column_values_to_not_be_null: {column: page}
    - expect_column_max_to_be_between: {column: n, max_value: 2}
      severity: warn
    - expect_column_values_to_be_in_set: {column: page, value_set: [a, b]}
      blocking: true
  ') AS SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;"""
TOTALS = dg.AssetKey(["projections", "totals"])


@pytest.fixture
def repository(made: MadeLake) -> dg.RepositoryDefinition:
    assert list(Interpreter(made.settings, "shop").run(VIEW))
    return build(made.settings).get_repository_def()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def execute(
    repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, *checks: str
) -> tuple[bool, dict[str, dg.AssetCheckEvaluation]]:
    """Make checks of the view `totals`; whether the run succeeded, and what each found."""
    keys = [dg.AssetCheckKey(TOTALS, name) for name in checks]
    job = repository.get_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection=set(keys)
    )
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    return result.success, {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_expectations_pass_warn_and_fail_as_the_view_says(
    repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, made: MadeLake
) -> None:
    names = (
        "expect_column_values_to_not_be_null__page",
        "expect_column_max_to_be_between__n",
        "expect_column_values_to_be_in_set__page",
    )
    ok, found = execute(repository, instance, *names)
    assert not ok, "a blocking check that fails fails the run"
    passed, warned, failed = (found[name] for name in names)
    assert passed.passed
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (failed.passed, failed.severity, failed.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
    assert failed.description == "1 of 3 rows are unexpected: 'd'"
    assert failed.metadata["unexpected rows"].value == 1
    assert failed.metadata["delta version"].value == 2
    assert "values must belong to this set" in str(failed.metadata["details"].value)
    page = made.lake.data_docs("totals")
    assert failed.metadata["data docs"].value == str(page)
    assert "1 passed, 1 warning, 1 failed" in page.read_bytes().decode()


def test_checks_link_to_the_page_on_the_server_where_one_is_known(made: MadeLake) -> None:
    settings = made.settings.model_copy(update={"server": ServerSettings(url="http://127.0.0.1:8088/")})
    found = data_docs("by town", settings)["data docs"]
    assert found.value == "http://127.0.0.1:8088/v1/views/by%20town/data-docs"


def test_every_view_has_its_health_checks_and_proofs(
    repository: dg.RepositoryDefinition, instance: dg.DagsterInstance
) -> None:
    for job, checks in (("health_checks", 4), ("proofs", 5)):
        result = repository.get_job(job).execute_in_process(instance=instance)
        found = result.get_asset_check_evaluations()
        assert len(found) == 3 * checks, "of three views"
        assert {each.check_name for each in found if not each.passed} <= {"dead_letters"}
    assert all(each.metadata["proof seconds"].value for each in found), "so that the page says what another one costs"
    assert "proof seconds, forecast" not in found[0].metadata, "nothing was known"
    again = repository.get_job("proofs").execute_in_process(instance=instance).get_asset_check_evaluations()
    assert all(each.metadata["proof seconds, forecast"].value for each in again)


def test_a_drain_makes_the_cheap_checks_and_not_the_dear_ones(repository: dg.RepositoryDefinition) -> None:
    nodes = {node.name for node in repository.get_job("drain_shop").nodes}
    assert nodes == {"shop__drain", "shop__health_checks", "shop__expectations"}


def test_compaction_reports_each_table_that_it_works_on_and_nothing_of_the_others(
    repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, made: MadeLake
) -> None:
    def observed(found: dg.RepositoryDefinition, *, scheduled: bool = True) -> set[dg.AssetKey]:
        (schedule,) = (each for each in found.schedule_defs if each.job_name == "compact")
        with dg.build_schedule_context(instance, scheduled_execution_time=dt.datetime.now(dt.UTC)) as context:
            (request,) = schedule.evaluate_tick(context).run_requests or ()
        config = request.run_config if scheduled else {}
        result = found.get_job("compact").execute_in_process(instance=instance, run_config=config)
        return {e.asset_observation_data.asset_observation.asset_key for e in result.get_asset_observation_events()}

    assert observed(repository) == set(), "an hour in which nothing is due leaves no event"
    brief = made.settings.model_copy(update={"retention": RetentionSettings(horizon_days=1e-9)})
    assert observed(build(brief).get_repository_def(), scheduled=False) == set(), "a person is told the plan first"
    freed = observed(build(brief).get_repository_def())
    assert TOTALS in freed
    assert not [key for key in freed if key.path[0] == "changelogs"], "a changelog is its projection's table"


def test_the_button_refreshes_and_rehearses_nothing(repository: dg.RepositoryDefinition) -> None:
    """Dagster's page launches the first job by name that the assets have in common, with that job's checks."""
    node = next(each for each in RepositorySnap.from_def(repository).asset_nodes if each.asset_key == TOTALS)
    assert node.job_names[0] == "Refresh"
    nodes = {node.name for node in repository.get_job("Refresh").nodes}
    assert nodes == {"shop__drain", "shop__health_checks", "shop__expectations"}


def test_every_check_says_what_it_checks(repository: dg.RepositoryDefinition) -> None:
    specs = [spec for each in repository.asset_checks_defs_by_key.values() for spec in each.check_specs]
    assert specs
    assert all(spec.description for spec in specs)


def test_a_drill_is_a_check_and_its_seconds_are_plotted(
    repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, made: MadeLake
) -> None:
    ok, found = execute(repository, instance, "drill_recompute")
    drill = found["drill_recompute"]
    assert ok
    assert drill.passed, drill.description
    assert drill.metadata["digest equal"].value is True
    (observed,) = instance.fetch_observations(TOTALS, limit=10).records
    assert observed.asset_observation is not None
    assert "recovery seconds: recompute" in observed.asset_observation.metadata
    assert [each.drill for each in history(made.lake)] == ["recompute"]


def test_what_is_scheduled_is_on_from_the_start(repository: dg.RepositoryDefinition, made: MadeLake) -> None:
    assert {each.job_name: each.default_status for each in repository.schedule_defs} == dict.fromkeys(
        ("health_checks", "expectations", "proofs", "drills", "compact", "thin_history"),
        dg.DefaultScheduleStatus.RUNNING,
    )
    running = {each.name for each in repository.sensor_defs if each.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {"alerts", "commits", "keep_streams"}, "what is kept is what somebody launched"
    backed_up = made.settings.model_copy(update={"backup": BackupSettings(destination="/backups")})
    assert "backup" in {each.job_name for each in build(backed_up).get_repository_def().schedule_defs}
