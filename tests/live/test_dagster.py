"""Dagster as a user meets it: webserver and daemon are started over a lake whose topics are a real broker's, a run is
launched, and everything is read back over GraphQL from what the browser would ask.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kafka.broker import KafkaBroker
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.model.settings import KafkaSettings
from strandline.jobs.run.heartbeat import Heartbeat, read_beat
from strandline.orchestration.launch import Group
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.live.running_dagster import (
    FORCE_TERMINATE,
    TERMINATE,
    Dagster,
    entries,
    running,
)
from tests.support.waiting import PATIENCE_SECONDS, wait_until

PIPELINE = """
CREATE STREAM package_checkins (package_id BIGINT KEY, location VARCHAR, processed_by VARCHAR)
  WITH (KAFKA_TOPIC = 'dagster_checkins_topic', VALUE_FORMAT = 'JSON', PARTITIONS = 3);
CREATE TABLE package_locations AS
  SELECT package_id, LATEST_BY_OFFSET(location) AS current_location FROM package_checkins GROUP BY package_id;
INSERT INTO package_checkins (package_id, location) VALUES (1, 'New York');
INSERT INTO package_checkins (package_id, location) VALUES (2, 'London');
INSERT INTO package_checkins (package_id, location) VALUES (1, 'Rome');
"""
_BROKER = "broker"
"""The file that says where the broker is."""
# What the launcher says when the child is there.
STARTED = r"started process (\d+)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker) -> Path:
    made = tmp_path_factory.mktemp("dagster")
    (made / _BROKER).write_text(kafka_broker.bootstrap_servers)
    return made


@pytest.fixture(scope="module")
def dagster(folder: Path) -> Iterator[Dagster]:
    """Dagster over a lake with one registered pipeline and three events that wait in its topic."""
    (folder / "packages.sql").write_text(PIPELINE)
    insert(folder)
    with running(folder, environment(folder)) as up:
        yield up


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "STRANDLINE_KAFKA__BOOTSTRAP_SERVERS": (folder / _BROKER).read_text(),
        "STRANDLINE_LAKE": str(folder / "lake"),
        "STRANDLINE_SPARK__MASTER": "local[2]",
        "STRANDLINE_INGEST__DRIVER_ROWS": "0",  # Spark takes in what comes: its JVM is what nobody may leave behind
        "DAGSTER_HOME": str(folder / "home"),
    }


def insert(folder: Path) -> None:
    """Three events; the first time the pipeline is registered as well."""
    command = [str(Path(sys.executable).with_name("strandline")), "sql", "-f", "packages.sql"]
    subprocess.run(command, cwd=folder, env=environment(folder), check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.live
def test_the_graph_is_there_before_anything_ran(dagster: Dagster) -> None:
    """Topics are shown, not made; everything else stands below them in the pipeline's group."""
    nodes = dagster.assets()
    dependencies = {key: {"/".join(d["path"]) for d in node["dependencyKeys"]} for key, node in nodes.items()}
    assert dependencies == {
        "topics/dagster_checkins_topic.topic": set(),
        "logs/package_checkins__log": {"topics/dagster_checkins_topic.topic"},
        "dead_letters/package_checkins__dead_letters": {"topics/dagster_checkins_topic.topic"},
        "projections/package_locations": {"logs/package_checkins__log"},
        "changelogs/package_locations__changelog": {"projections/package_locations"},
    }
    assert {node["groupName"] for node in nodes.values()} == {"packages"}
    assert not nodes["topics/dagster_checkins_topic.topic"]["isExecutable"]
    projection = nodes["projections/package_locations"]
    assert set(projection["kinds"]) == {"deltalake", "view"}
    assert projection["owners"] == [{"team": "strandline"}]
    assert projection["freshnessPolicy"] is None, "its check is the verdict"
    assert "LATEST_BY_OFFSET(location)" in projection["description"]


@pytest.mark.live
def test_a_launched_run_materializes_the_pipeline_and_leaves_its_numbers(dagster: Dagster) -> None:
    run = dagster.launch("drain_packages")
    pid = int(dagster.wait_for_message(run, STARTED).group(1))
    dagster.wait_for(run, "SUCCESS")
    assert not Group(pid).members()
    nodes = dagster.assets()

    projection = entries(nodes["projections/package_locations"])
    assert projection["dagster/row_count"] == 2
    assert projection["dagster/size_bytes"] > 0
    assert projection["batch seconds"] > 0
    vector = json.loads(projection["version vector (json)"])
    assert set(vector) == {"package_checkins"}
    assert f"| `package_checkins` | {vector['package_checkins']} |" in projection["version vector"]
    assert projection["dagster/column_schema"]["columns"] == [
        {"name": "package_id", "type": "BIGINT"},
        {"name": "current_location", "type": "VARCHAR"},
    ]
    assert {entry["columnName"]: entry["columnDeps"] for entry in projection["dagster/column_lineage"]} == {
        "package_id": [{"assetKey": {"path": ["logs", "package_checkins__log"]}, "columnName": "package_id"}],
        "current_location": [{"assetKey": {"path": ["logs", "package_checkins__log"]}, "columnName": "location"}],
    }
    assert "| `current_location` | `package_checkins.location` |" in projection["column lineage"]

    assert entries(nodes["logs/package_checkins__log"])["dagster/row_count"] == 3
    assert entries(nodes["dead_letters/package_checkins__dead_letters"])["dagster/row_count"] == 0
    assert entries(nodes["changelogs/package_locations__changelog"])["changes"] >= 2


@pytest.mark.live
@pytest.mark.kill
def test_a_terminated_run_takes_its_jvm_with_it_and_lets_the_next_one_in(dagster: Dagster, folder: Path) -> None:
    """Terminated as soon as the JVM is there, through the webserver, the code server and the run's own process.

    A run of a part of the pipeline is launched meanwhile: it waits for the pipeline's only slot, gets it when the
    first run is gone, and reports its part only.
    """
    insert(folder)  # a run that finds nothing new starts no JVM
    before = dagster.assets()["logs/package_checkins__log"]["assetMaterializations"]
    first = dagster.launch("drain_packages")
    pid = int(dagster.wait_for_message(first, STARTED).group(1))
    second = dagster.launch("Refresh", "projections/package_locations")
    wait_until(lambda: len(Group(pid).members()) >= 2, "the JVM did not start")
    assert not any(re.search(STARTED, message) for message in dagster.messages(second))
    dagster.ask(TERMINATE, id=first)
    dagster.wait_for(first, "CANCELED")
    assert not Group(pid).members()

    dagster.wait_for(second, "SUCCESS")
    nodes = dagster.assets()
    assert entries(nodes["projections/package_locations"])["dagster/row_count"] == 2
    assert nodes["logs/package_checkins__log"]["assetMaterializations"] == before


def stream_of(folder: Path) -> Heartbeat:
    """The heartbeat of a stream that is alive."""
    lake, found = LakeLayout(folder / "lake"), list[Heartbeat]()

    def beats() -> bool:
        beat = read_beat(lake, "packages")
        if beat is not None and beat.mode == "continuous" and beat.is_running:
            found.append(beat)
        return bool(found)

    wait_until(beats, lambda: f"no stream: {read_beat(lake, 'packages')}", 0.2)
    return found[0]


def events_of(folder: Path) -> int:
    """The events that the event log holds."""
    head = reader.head(LakeLayout(folder / "lake").table("package_checkins"))
    return 0 if head is None else head.record.rows or 0


def until_fresh(folder: Path, events: int) -> None:
    """Wait until the event log holds as many events, and the view reflects all of them."""
    lake = LakeLayout(folder / "lake")
    wait_until(
        lambda: events_of(folder) == events and reflects(lake, "package_locations", "package_checkins"),
        lambda: f"{events_of(folder)} events, not {events}; or the view is behind",
        0.2,
    )


def reflects(lake: LakeLayout, view: str, log: str) -> bool:
    """True if the view's vector names the head of the log."""
    made, head = reader.head(lake.table(view)), reader.head(lake.table(log))
    return made is not None and head is not None and made.record.versions.get(log) == head.version


@pytest.mark.live
@pytest.mark.kill
def test_a_stream_survives_its_driver_the_daemon_and_the_code_servers(dagster: Dagster, folder: Path) -> None:
    """Killed in turn, three events after each: nothing is lost, and at the end the view is what its SQL says."""
    topic = KafkaLog(KafkaSettings(bootstrap_servers=(folder / _BROKER).read_text()))
    events = sum(topic.end_offsets("dagster_checkins_topic").values())
    run = dagster.launch("stream_packages")
    first = stream_of(folder)
    insert(folder)
    until_fresh(folder, events + 3)

    os.kill(first.process.pid, signal.SIGKILL)
    insert(folder)
    until_fresh(folder, events + 6)
    second = stream_of(folder)
    assert second.process.pid != first.process.pid, "the run started it again"
    assert not Group(first.process.pid).members(), "its JVM went with it"

    killed = [*dagster.services("api grpc"), *dagster.services("dagster._daemon")]
    assert len(killed) >= 3, "two code servers and the daemon"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    insert(folder)
    until_fresh(folder, events + 9)
    assert stream_of(folder).process == second.process, "the same stream"

    # The code server that could pass a cancel on is gone; the run looks for itself whether it is wanted.
    dagster.ask(FORCE_TERMINATE, id=run)
    wait_until(lambda: not Group(second.process.pid).members(), "the stream outlived its run", 0.2)
    command = [str(Path(sys.executable).with_name("strandline")), "verify", "--deep"]
    subprocess.run(command, cwd=folder, env=environment(folder), check=True, timeout=PATIENCE_SECONDS)
