"""The jobs of a lake's whole life: the commands that a person would type, as real child processes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import BackupSettings, Settings, load_settings
from strandline.jobs.operate.verify.verify import verify
from strandline.orchestration import operations
from strandline.orchestration.definitions import build
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.lakes import MadeLake

__all__ = ["made", "template"]  # fixtures


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def run(
    settings: Settings, instance: dg.DagsterInstance, job: str, op: str, **config: Any
) -> dg.ExecuteInProcessResult:
    found = build(settings).get_repository_def().get_job(job)
    return found.execute_in_process({"ops": {op: {"config": config}}}, instance=instance, raise_on_error=False)


def printed(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of what a job printed."""
    (output,) = (event.event_specific_data for event in result.all_events if event.is_successful_output)
    return {label: value.value for label, value in output.metadata.items()}  # type: ignore[union-attr]


def failed(result: dg.ExecuteInProcessResult) -> str:
    (event,) = result.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data.description or ""


def test_a_backup_goes_where_the_settings_say_and_is_restored_and_proved(
    made: MadeLake, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    to = tmp_path / "backups"
    settings = made.settings.model_copy(update={"backup": BackupSettings(destination=str(to))})
    assert run(settings, instance, "backup", "back_up", destination=str(to), dry_run=True).success
    assert not to.exists(), "a dry run copies nothing"
    done = run(settings, instance, "backup", "back_up", destination=str(to))
    assert done.success
    assert printed(done)["number"] == 1
    restored = tmp_path / "restored"
    assert run(settings, instance, "restore", "restore_lake", lake=str(restored)).success
    assert not [each for each in verify(load_settings(lake=restored), deep=True) if each.ok is False]


def test_a_file_is_applied_when_it_is_told_so(made: MadeLake, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    file = tmp_path / "more.sql"
    file.write_text("CREATE TABLE per_page AS SELECT page, COUNT(*) AS n FROM visits GROUP BY page;")
    planned = run(made.settings, instance, "replace", "replace_definitions", file=str(file))
    assert planned.success
    assert "per_page" in printed(planned)["printed"]
    assert Catalog(made.lake).find("per_page") is None
    assert run(made.settings, instance, "replace", "replace_definitions", file=str(file), dry_run=False).success
    assert Catalog(made.lake).find("per_page") is not None


def test_days_are_backfilled_by_their_partitions(made: MadeLake, instance: dg.DagsterInstance) -> None:
    job = build(made.settings).get_repository_def().get_job("backfill_days")
    config = {"ops": {"backfill_day": {"config": {"view": "totals", "by": "at"}}}}
    done = job.execute_in_process(config, instance=instance, raise_on_error=False, partition_key="2024-05-01")
    # `totals` has no column of times: what the command says reaches the run.
    assert "backfill" in failed(done)


def test_what_verify_finds_broken_fails_the_run_and_names_it(made: MadeLake, instance: dg.DagsterInstance) -> None:
    assert run(made.settings, instance, "verify", "verify_tables", names=["totals"]).success
    files = list(Path(str(made.lake.table("totals"))).rglob("*.parquet"))
    for file in files:
        file.write_bytes(b"damaged")
    assert files
    assert "found what is not as it must be" in failed(
        run(made.settings, instance, "verify", "verify_tables", names=["totals"], deep=False)
    )


def test_a_rebuild_is_a_dry_run_unless_it_is_told_otherwise(made: MadeLake, instance: dg.DagsterInstance) -> None:
    """And one that the command refuses fails with the command's own words."""
    before = sorted(Path(str(made.lake.table("totals"))).rglob("*"))
    assert run(made.settings, instance, "rebuild", "rebuild_rows", names=["totals"]).success
    assert sorted(Path(str(made.lake.table("totals"))).rglob("*")) == before
    assert "nothing_such" in failed(run(made.settings, instance, "rebuild", "rebuild_rows", names=["nothing_such"]))
    assert run(made.settings, instance, "rebuild", "rebuild_rows").success, "nothing is broken"


def test_every_job_schedule_and_field_says_what_it_is(made: MadeLake, tmp_path: Path) -> None:
    """The pages show these texts beside the names: a form of bare fields is guessed at."""
    settings = made.settings.model_copy(update={"backup": BackupSettings(destination=str(tmp_path))})
    repository = build(settings).get_repository_def()
    assert {each.name: each.description for each in repository.schedule_defs if not each.description} == {}
    assert {each.name: each.description for each in repository.get_all_jobs() if not each.description} == {
        "__ASSET_JOB": None
    }
    forms = [each for each in vars(operations).values() if isinstance(each, type) and issubclass(each, dg.Config)]
    fields = {(form.__name__, name): field.description for form in forms for name, field in form.model_fields.items()}
    assert ("Restoration", "lake") in fields
    assert {key: said for key, said in fields.items() if not said} == {}
