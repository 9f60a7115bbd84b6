"""A drain that Dagster starts: what it reports, how it fails, and that nothing of it outlives its step.

The children here are real processes that run `jobs.run.dagster_child` with a pipeline that needs no JVM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from jobs.ivm.plan.plan import plan
from jobs.model import types as t
from jobs.model.definitions import Column, Source, View
from orchestration import assets as assets_module
from orchestration.assets import pipeline_assets
from orchestration.launch import DrainClient
from orchestration.translator import Translator
from state_store.layout import Lake
from tests.support.memory_catalog import MemoryCatalog

# Python starts in well under a second; a machine that is busy with other tests may need many.
PATIENCE_SECONDS = 60.0

STREAM = Source(
    name="checkins",
    kind="stream",
    columns=(Column("id", t.BIGINT, key=True), Column("place", t.VARCHAR)),
    topic="checkins_topic",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="packages",
    sql="CREATE STREAM checkins …;",
)
VIEW = View(
    name="locations",
    kind="table",
    columns=(Column("id", t.BIGINT, key=True), Column("seen", t.VARCHAR)),
    query="SELECT id, LATEST_BY_OFFSET(place) AS seen FROM checkins GROUP BY id",
    inputs=("checkins",),
    pipeline="packages",
    sql="CREATE TABLE locations AS SELECT …;",
    fingerprint="f1",
)
REPORTING = """
    def table(name, rows, vector):
        return TableReport(name=name, version=4, epoch=3, rows=rows, bytes=1000, inserted=rows, deleted=1, seconds=0.5,
                           vector=vector, offsets={}, mode='delta', reason='few keys', digest=f'd:{rows}')

    def drain(settings, name):
        print('on standard output')
        return RunReport(name, 2, 1.5, (table('checkins', 10, {}), table('locations', 3, {'checkins': 4})))
"""
STANDS_AND_REFUSES = """
    def drain(settings, name):
        import os, signal, subprocess, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stay = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'
        # Like Spark's Python workers: in a process group of its own, in our session.
        worker = subprocess.Popen([sys.executable, '-c', stay], process_group=0)
        time.sleep(0.3)
        pids.write_text(f'{os.getpid()} {worker.pid}')
        time.sleep(600)
"""


def child(body: str, pids: Path | None = None) -> list[str]:
    """The command of a child whose `jobs.run.pipeline.drain` is `body`'s."""
    head = f"""
    import sys, types
    from pathlib import Path
    from dataclasses import dataclass
    from jobs.model.errors import *
    from state_store.errors import *
    pids = Path({str(pids)!r})

    @dataclass
    class TableReport:
        name: str; version: int; epoch: int; rows: int; bytes: int; inserted: int; deleted: int
        seconds: float; vector: dict; offsets: dict; mode: str; reason: str; digest: str

    @dataclass
    class RunReport:
        pipeline: str; epochs: int; seconds: float; tables: tuple
    """
    tail = """
    module = types.ModuleType('jobs.run.pipeline')
    module.drain = drain
    sys.modules['jobs.run.pipeline'] = module
    from jobs.run.dagster_child import main
    sys.exit(main(['packages']))
    """
    return [sys.executable, "-c", "".join(textwrap.dedent(part) for part in (head, body, tail))]


def packages(
    command: list[str], monkeypatch: pytest.MonkeyPatch, client: DrainClient | None = None
) -> dg.AssetsDefinition:
    """The multi-asset of a small pipeline, whose drain is `command`; it is tried twice, without delay."""
    monkeypatch.setattr(assets_module, "drain_command", lambda _pipeline: command)
    monkeypatch.setattr(assets_module, "_RETRIES", 1)
    monkeypatch.setattr(assets_module, "_FIRST_DELAY_SECONDS", 0)
    definitions = (STREAM, VIEW)
    catalog = MemoryCatalog()
    for definition in definitions:
        catalog.add(definition)
    translator = Translator(definitions, Lake(Path("/lake")), plan_of=lambda view: plan(view, catalog))
    made = pipeline_assets("packages", definitions, translator, client or DrainClient())
    assert made is not None
    return made


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    events = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return {event.asset_key.to_user_string(): event for event in events}


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, object]]:
    """The description and the metadata of the failed step."""
    (event,) = result.get_step_failure_events()
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return data.description or "", {label: value.value for label, value in data.metadata.items()}


def retries_of(result: dg.ExecuteInProcessResult) -> int:
    return sum(event.is_step_up_for_retry for event in result.all_events)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def pids_in(file: Path) -> list[int]:
    wait_until(lambda: file.exists() and file.read_text().count(" ") == 1, "the child did not start")
    return [int(pid) for pid in file.read_text().split()]


def test_each_table_reports_its_numbers_and_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers come from the child, columns and lineage from the definition, and both land in the event."""
    result = dg.materialize([packages(child(REPORTING), monkeypatch)])
    found = materialized(result)
    assert set(found) == {
        "logs/checkins",
        "dead_letters/checkins",
        "projections/locations",
        "changelogs/locations",
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
    assert found["changelogs/locations"].metadata["changes"].value == 4
    assert "dagster/row_count" not in found["changelogs/locations"].metadata
    assert found["dead_letters/checkins"].metadata["dagster/row_count"].value == 0
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


def test_a_cancelled_run_leaves_nothing_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel arrives as SIGINT in the step's process. The child and its worker both refuse SIGTERM."""
    noted = tmp_path / "pids"
    command = child(STANDS_AND_REFUSES, noted)
    found: list[int] = []

    def cancel() -> None:
        found.extend(pids_in(noted))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=cancel, daemon=True).start()
    assets = packages(command, monkeypatch, DrainClient(grace_seconds=0.5))
    with pytest.raises((KeyboardInterrupt, DagsterExecutionInterruptedError)):
        dg.materialize([assets])
    assert len(found) == 2
    assert not [pid for pid in found if alive(pid)]


def test_a_drain_past_its_time_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pids"
    client = DrainClient(grace_seconds=0.2, timeout_seconds=5)
    assets = packages(child(STANDS_AND_REFUSES, noted), monkeypatch, client)
    result = dg.materialize([assets], raise_on_error=False)
    assert "longer than 5 s" in failure_of(result)[0]
    assert retries_of(result) == 0
    assert not [pid for pid in pids_in(noted) if alive(pid)]


def test_a_child_ends_itself_when_its_watcher_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the step's process gives it no chance to clean up: the child's lifeline does.

    The worker is left out here: Spark's workers end with the JVM, whose end the kernel's pipe tells them.
    """
    noted = tmp_path / "pids"
    stands = """
    def drain(settings, name):
        import os, time
        pids.write_text(f'{os.getpid()} {os.getppid()}')
        time.sleep(600)
    """
    watcher = f"""
    import dagster as dg
    from orchestration.launch import DrainClient
    @dg.asset
    def drained(context: dg.AssetExecutionContext):
        return DrainClient().run(context=context, command={child(stands, noted)!r}).get_results()
    dg.materialize([drained])
    """
    step = subprocess.Popen([sys.executable, "-c", textwrap.dedent(watcher)], start_new_session=True)
    pid, parent = pids_in(noted)
    assert parent == step.pid
    step.kill()
    step.wait()
    wait_until(lambda: not alive(pid), "the child outlived its watcher")
