"""What the browser asks for: the checks of a pipeline that passes, warns, blocks and keeps a row out, over GraphQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_graphql.cli import execute_query

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.orchestration.definitions import build
from tests.support import checked_pipeline

CHECKS = """
query Checks($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetChecksOrError {
        ... on AssetChecks {
          checks {
            name blocking
            executionForLatestMaterialization {
              status
              evaluation {
                success severity description
                metadataEntries { label ... on IntMetadataEntry { intValue } ... on MarkdownMetadataEntry { mdStr } }
              }
            }
          }
        }
      }
    }
  }
}
"""


class Browser:
    """What a browser would get: queries over the code location of one lake, in this process."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        origin = InProcessCodeLocationOrigin(
            LoadableTargetOrigin(executable_path=sys.executable, module_name="strandline.orchestration.definitions"),
            location_name="strandline",
        )
        self._workspace = WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin))

    def __enter__(self) -> Browser:
        self._workspace.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._workspace.__exit__(*error)

    def ask(self, query: str, **variables: object) -> Any:
        """The data of an answer."""
        told = execute_query(self._workspace, query, variables)
        assert "errors" not in told, told["errors"]
        return told["data"]

    def checks(self, key: str) -> dict[str, dict[str, Any]]:
        """{check of an asset: whether it blocks, and its newest execution}."""
        node = self.ask(CHECKS, key={"path": key.split("/")})["assetNodeOrError"]
        return {each["name"]: each for each in node["assetChecksOrError"]["checks"]}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of a lake in which every outcome of an expectation is there."""
    folder = tmp_path_factory.mktemp("checked")
    lake = checked_pipeline.made(folder)
    settings = load_settings(lake=lake.root)
    drain(settings, checked_pipeline.PIPELINE)
    checked_pipeline.more(lake)
    drain(settings, checked_pipeline.PIPELINE)
    return settings


@pytest.fixture(scope="module")
def browser(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, after all checks of the lake were made."""
    home = tmp_path_factory.mktemp("dagster")
    with pytest.MonkeyPatch.context() as patched, dg.DagsterInstance.local_temp(str(home)) as instance:
        patched.setenv("STRANDLINE_LAKE", str(settings.lake))
        repository = build(settings).get_repository_def()
        checks = {key for each in repository.asset_checks_defs_by_key.values() for key in each.check_keys}
        cheap = {key for key in checks if key.name.startswith("expect_") or key.name == "dead_letters"}
        job = repository.get_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection=cheap
        )
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success, "a check blocks"
        with Browser(instance) as made:
            yield made


def outcome(check: dict[str, Any]) -> tuple[object, ...]:
    """Whether a check blocks and passed, how bad it is that it did not, and what it says."""
    evaluation = check["executionForLatestMaterialization"]["evaluation"]
    return check["blocking"], evaluation["success"], evaluation["severity"], evaluation["description"]


def test_the_four_outcomes_of_expectations_are_told(browser: Browser) -> None:
    earned, paid = browser.checks("projections/earned"), browser.checks("projections/paid")
    passes = earned["expect_column_values_to_not_be_null__place"]
    assert outcome(passes) == (False, True, "WARN", "0 of 2 rows are unexpected")
    warns = earned["expect_column_values_to_be_between__rides"]
    assert outcome(warns) == (False, False, "WARN", "1 of 2 rows are unexpected: 4")
    blocks = earned["expect_column_values_to_be_between__fare"]
    assert outcome(blocks) == (True, False, "ERROR", "1 of 2 rows are unexpected: 140")
    keeps_out = paid["expect_column_values_to_not_be_null__fare"]
    assert outcome(keeps_out) == (False, True, "WARN", "0 of 5 rows are unexpected; 1 row in quarantine")


def test_a_check_shows_what_great_expectations_says_and_the_rows_in_quarantine(browser: Browser) -> None:
    check = browser.checks("projections/paid")["expect_column_values_to_not_be_null__fare"]
    entries = check["executionForLatestMaterialization"]["evaluation"]["metadataEntries"]
    shown = {each["label"]: each for each in entries}
    assert shown["rows in quarantine"]["intValue"] == 1
    assert "values must never be null" in shown["details"]["mdStr"]
    assert '{"rows_id":6,"rows_place":"Oslo","rows_fare":null}' in shown["details"]["mdStr"]


def test_a_quarantine_is_among_the_dead_letters_too(browser: Browser) -> None:
    said = (False, False, "WARN", "1 row kept aside, of 6 that came")
    assert outcome(browser.checks("projections/paid")["dead_letters"]) == said
