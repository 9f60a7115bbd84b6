"""A drain that Dagster starts: what it reports, and how it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest

from strandline.jobs.operate.health_checks import Hindrance, Hindrances
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.layout import LakeLayout
from tests.unit.orchestration.child_drains import REPORTING, child, failure_of, materialized, packages, retries_of


def test_each_table_reports_its_numbers_and_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers come from the child, columns and lineage from the definition, and both land in the event."""
    result = dg.materialize([packages(child(REPORTING), monkeypatch)])
    found = materialized(result)
    assert set(found) == {
        "logs/checkins__log",
        "dead_letters/checkins__dead_letters",
        "projections/locations",
        "changelogs/locations__changelog",
    }
    numbers = {label: value.value for label, value in found["projections/locations"].metadata.items()}
    assert numbers["dagster/row_count"] == 3
    assert numbers["dagster/size_bytes"] == 1000
    assert numbers["batch seconds"] == 0.5
    assert numbers["rows per second"] == 8.0
    assert numbers["delta version"] == 4
    assert numbers["version vector (json)"] == {"checkins": 4}
    assert "| `checkins` | 4 |" in str(numbers["version vector"])
    assert {"dagster/column_schema", "dagster/column_lineage", "column lineage"} <= set(numbers)
    assert found["changelogs/locations__changelog"].metadata["changes"].value == 4
    assert "dagster/row_count" not in found["changelogs/locations__changelog"].metadata
    assert found["dead_letters/checkins__dead_letters"].metadata["dagster/row_count"].value == 0
    assert found["projections/locations"].tags is not None
    assert found["projections/locations"].tags["dagster/data_version"] == "d:3"


def test_a_subset_drains_the_pipeline_but_reports_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assets = packages(child(REPORTING), monkeypatch)
    result = dg.materialize([assets], selection=dg.AssetSelection.assets("projections/locations"))
    assert set(materialized(result)) == {"projections/locations"}


def test_a_table_without_a_commit_is_up_to_date_with_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event came yet: nothing is missing, and nothing else is claimed."""
    nothing = "\n    def drain(settings, name):\n        return RunReport(name, 0, 0.1, ())\n"
    found = materialized(dg.materialize([packages(child(nothing), monkeypatch)]))
    assert len(found) == 4
    for event in found.values():
        assert event.metadata["dagster/row_count"].value == 0
        assert "delta version" not in event.metadata


def test_a_view_that_is_held_is_not_materialized_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(Hindrances):
        def of(self, name: str) -> Hindrance | None:
            return Hindrance("held", "it waits for 'gates'", "correct it") if name == "locations" else None

    held = Held((), WholeHeads(LakeLayout(Path("/lake"))))
    result = dg.materialize([packages(child(REPORTING), monkeypatch, hindrances=held)], raise_on_error=False)
    assert set(materialized(result)) == {"logs/checkins__log", "dead_letters/checkins__dead_letters"}
    observed = {
        event.asset_observation_data.asset_observation.asset_key.to_user_string(): (
            event.asset_observation_data.asset_observation.metadata["state"].value,
            event.asset_observation_data.asset_observation.metadata["why"].value,
        )
        for event in result.get_asset_observation_events()
    }
    said = ("held", "it waits for 'gates'")
    assert observed == {"projections/locations": said, "changelogs/locations__changelog": said}
    assert "projections/locations is held: it waits for 'gates'" in failure_of(result)[0]
    assert retries_of(result) == 0


def test_a_child_that_says_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 alone proves nothing: a JVM that died may leave it too."""
    result = dg.materialize([packages([sys.executable, "-c", ""], monkeypatch)], raise_on_error=False)
    assert not materialized(result)
    assert "without its report" in failure_of(result)[0]


def test_our_own_errors_arrive_with_code_and_hint_and_end_the_run_when_trying_again_is_no_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = """
    def drain(settings, name):
        raise TopicMissing("topic 'x' is not there", hint="create it")
    """
    result = dg.materialize([packages(child(stop), monkeypatch)], raise_on_error=False)
    description, metadata = failure_of(result)
    assert description == "[source.topic_missing] topic 'x' is not there\nhint: create it"
    assert metadata["exit code"] == 1
    assert metadata["error code"] == "source.topic_missing"
    assert metadata["action"] == "stop"
    assert "topic 'x' is not there" in str(metadata["standard error (end)"])
    assert retries_of(result) == 0
    assert not materialized(result)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("raise SourceUnavailable('no answer')", id="an error that says retry"),
        pytest.param("import os; os.kill(os.getpid(), 9)", id="killed from outside"),
    ],
)
def test_what_may_pass_is_tried_again(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = f"\n    def drain(settings, name):\n        {body}\n"
    result = dg.materialize([packages(child(failing), monkeypatch)], raise_on_error=False)
    assert not result.success
    assert retries_of(result) == 1


def test_an_unexpected_error_shows_the_end_of_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "\n    def drain(settings, name):\n        raise RuntimeError('the deep cause')\n"
    result = dg.materialize([packages(child(broken), monkeypatch)], raise_on_error=False)
    description, metadata = failure_of(result)
    assert "exit code 1" in description
    assert "RuntimeError: the deep cause" in str(metadata["standard error (end)"])
