"""Dagster's webserver and daemon, started as a user starts them, and asked over GraphQL as the browser asks."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring.process_tree import processes_below
from infra.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, wait_until

_POLL_SECONDS = 0.5
ASSETS = """
query Assets {
  assetNodes {
    assetKey { path } dependencyKeys { path } groupName kinds isExecutable description
    owners { ... on TeamAssetOwner { team } }
    freshnessPolicy: internalFreshnessPolicy { __typename }
    assetMaterializations(limit: 1) { metadataEntries { ...entry } }
  }
}
fragment entry on MetadataEntry {
  label
  ... on IntMetadataEntry { intValue }
  ... on FloatMetadataEntry { floatValue }
  ... on TextMetadataEntry { text }
  ... on MarkdownMetadataEntry { mdStr }
  ... on JsonMetadataEntry { jsonString }
  ... on TableSchemaMetadataEntry { schema { columns { name type } } }
  ... on TableColumnLineageMetadataEntry {
    lineage { columnName columnDeps { assetKey { path } columnName } }
  }
}
"""
LAUNCH = """
mutation Launch($selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, runConfigData: {}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
RUN = """
query Run($id: ID!) {
  runOrError(runId: $id) {
    ... on Run { status }
  }
  logsForRun(runId: $id) { ... on EventConnection { events { ... on MessageEvent { message } } } }
}
"""
LAST = """
query Last($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 1) { timestamp } } }
}
"""
TERMINATE = """
mutation Terminate($id: String!) { terminateRun(runId: $id) { __typename } }
"""
FORCE_TERMINATE = """
mutation Terminate($id: String!) {
  terminateRun(runId: $id, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) { __typename }
}
"""


class Dagster:
    """A running webserver and daemon."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid
        """Of the command that started both."""

    def services(self, word: str) -> list[int]:
        """The pids of the processes below the command with these words in their command lines."""
        return [pid for pid in processes_below(self.pid) if pid != self.pid and word in command_of(pid)]

    def ask(self, query: str, **variables: object) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            told = json.load(answer)
        assert "errors" not in told, told["errors"]
        return told["data"]

    def launch(self, job: str, *selection: str) -> str:
        """Launch a run and return its id."""
        selector: dict[str, object] = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "strandline",
            "jobName": job,
        }
        if selection:
            selector["assetSelection"] = [{"path": key.split("/")} for key in selection]
        launched = self.ask(LAUNCH, selector=selector)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def wait_for(self, run: str, *wanted: str) -> None:
        """Wait until the run has one of the wanted statuses; any other end is an error."""

        def has_come() -> bool:
            status = self.ask(RUN, id=run)["runOrError"]["status"]
            if status not in wanted:
                assert status not in ("FAILURE", "CANCELED", "SUCCESS"), (status, self.messages(run))
            return status in wanted

        wait_until(has_come, lambda: f"not {wanted}: {self.messages(run)}", _POLL_SECONDS)

    def wait_for_message(self, run: str, pattern: str) -> re.Match[str]:
        """Wait until a line of the run's log matches."""
        found: list[re.Match[str]] = []

        def has_come() -> bool:
            found.extend(match for message in self.messages(run) if (match := re.search(pattern, message)))
            return bool(found)

        wait_until(has_come, lambda: f"no message like {pattern!r}: {self.messages(run)}", _POLL_SECONDS)
        return found[0]

    def messages(self, run: str) -> list[str]:
        """The lines of the run's log so far."""
        return [event.get("message") or "" for event in self.ask(RUN, id=run)["logsForRun"]["events"]]

    def materialized(self, asset: str) -> float:
        """When an asset was materialized last, in seconds since the epoch."""
        (event,) = self.ask(LAST, key={"path": asset.split("/")})["assetOrError"]["assetMaterializations"]
        return float(event["timestamp"]) / 1000

    def assets(self) -> dict[str, dict[str, Any]]:
        """The asset nodes by key."""
        return {"/".join(node["assetKey"]["path"]): node for node in self.ask(ASSETS)["assetNodes"]}


def entries(node: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the newest materialization: {label: value}."""
    (event,) = node["assetMaterializations"]
    found = {}
    for entry in event["metadataEntries"]:
        label = entry.pop("label")
        found[label] = next(iter(entry.values()), None)
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def running(folder: Path, environment: dict[str, str]) -> Iterator[Dagster]:
    """`python -m strandline.orchestration.up`, ended by Ctrl-C."""
    ports = ["--port", str(free_port()), "--serve-port", str(free_port())]
    command = [sys.executable, "-m", "strandline.orchestration.up", *ports]
    up = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        lines = up.stdout.readline() + up.stdout.readline()
        url = re.search(r"Dagster is up: (http://127\.0\.0\.1:\d+)", lines)
        assert url is not None, f"it did not come up: {lines!r}"
        yield Dagster(url.group(1), up.pid)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE_SECONDS) == 0
