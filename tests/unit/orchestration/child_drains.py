"""Drains that Dagster starts: real processes that run `jobs.run.dagster_child` with a pipeline that needs no JVM."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import dagster as dg
import pytest

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source, View
from strandline.jobs.operate.health_checks import Hindrances
from strandline.orchestration import definitions as assets_module
from strandline.orchestration.definitions import pipeline_assets
from strandline.orchestration.launch import DrainClient
from strandline.orchestration.translator import Translator
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.layout import LakeLayout
from tests.support.memory_catalog import MemoryCatalog
from tests.support.waiting import wait_until

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
        refuses = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)'
        stay = refuses + '; print(1, flush=True); time.sleep(600)'
        # Like Spark's Python workers: in a process group of its own, in our session.
        worker = subprocess.Popen([sys.executable, '-c', stay], process_group=0, stdout=subprocess.PIPE)
        worker.stdout.readline()
        pids.write_text(f'{os.getpid()} {worker.pid}')
        time.sleep(600)
"""


def child(body: str, pids: Path | None = None) -> list[str]:
    """The command of a child whose `jobs.run.pipeline.drain` is `body`'s."""
    head = f"""
    import sys, types
    from pathlib import Path
    from dataclasses import dataclass, field
    from strandline.jobs.model.errors import *
    from strandline.state_store.errors import *
    pids = Path({str(pids)!r})

    @dataclass
    class TableReport:
        name: str; version: int; epoch: int; rows: int; bytes: int; inserted: int; deleted: int
        seconds: float; vector: dict; offsets: dict; mode: str; reason: str; digest: str; late: int | None = None
        early: tuple = ()

    @dataclass
    class RunReport:
        pipeline: str; epochs: int; seconds: float; tables: tuple; held: dict = field(default_factory=dict)
    """
    tail = """
    module = types.ModuleType('strandline.jobs.run.pipeline')
    module.drain = drain
    sys.modules['strandline.jobs.run.pipeline'] = module
    from strandline.jobs.run.dagster_child import main
    sys.exit(main(['drain', 'packages']))
    """
    return [sys.executable, "-c", "".join(textwrap.dedent(part) for part in (head, body, tail))]


def packages(
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    client: DrainClient | None = None,
    hindrances: Hindrances | None = None,
) -> dg.AssetsDefinition:
    """The multi-asset of a small pipeline, whose drain is `command`; it is tried twice, without delay."""
    monkeypatch.setattr(assets_module, "drain_command", lambda _pipeline: command)
    monkeypatch.setattr(assets_module, "_RETRIES", 1)
    monkeypatch.setattr(assets_module, "_FIRST_DELAY_SECONDS", 0)
    definitions = (STREAM, VIEW)
    catalog = MemoryCatalog()
    for definition in definitions:
        catalog.add(definition)
    translator = Translator(definitions, LakeLayout(Path("/lake")), plan_of=lambda view: plan(view, catalog))
    going_on = Hindrances((), WholeHeads(LakeLayout(Path("/lake"))))
    made = pipeline_assets(
        "packages", definitions, translator, client or DrainClient(), lambda: hindrances or going_on, list
    )
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


def pids_in(file: Path) -> list[int]:
    wait_until(lambda: file.exists() and file.read_text().count(" ") == 1, "the child did not start")
    return [int(pid) for pid in file.read_text().split()]
