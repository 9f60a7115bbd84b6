"""A real Apache Kafka broker for tests and benchmarks: one KRaft node from jars, on free ports.

`jobs.run.jars` fetches the jars. The broker is ready in three to five seconds, and ends with all its processes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from infra.ports import free_port

_HERE = Path(__file__).resolve().parent
# The ready broker takes 3–5 s on two idle cores; a machine that stands still for a while needs many times that.
_PATIENCE = 180.0
# An end in order is asked for where a test needs the files closed: it is cut short only when it hangs.
_ENDS_WITHIN = 60.0

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class KafkaBroker:
    """One broker. `start`, `stop` (clean) and `kill` (SIGKILL) may follow each other; the data stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, controller = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        text = _PROPERTIES.format(port=self.port, controller=controller, folder=folder)
        (folder / "server.properties").write_text(text)
        self._jars = _fetch_jars()
        identity = str(uuid.uuid4())
        format_storage = ["format", "--standalone", "-t", identity, "-c", str(folder / "server.properties")]
        done = subprocess.run(
            [*self._java("64m"), "kafka.tools.StorageTool", *format_storage],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start, and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java("512m"), "kafka.Kafka", str(self.folder / "server.properties")],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka did not start:\n{(self.folder / 'broker.log').read_text()[-4000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
        self.admin.create_topics([new])[topic].result(_PATIENCE)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_PATIENCE)

    def produce(self, topic: str, events: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1) -> None:
        """Write (key, value) pairs, all acknowledged at return; without `partition` the key chooses it."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 20, "partitioner": "murmur2"})
        write(producer, topic, events, partition)
        if producer.flush(_PATIENCE):
            raise RuntimeError("some events were not acknowledged")

    def transactional(self, name: str) -> Producer:
        """A producer with transactions, ready to begin one."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(_PATIENCE)
        return producer

    @cached_property
    def admin(self) -> AdminClient:
        """One client for all calls: it must outlive the futures it gives."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def _java(self, heap: str) -> list[str]:
        log4j = _HERE / "log4j2.properties"
        return ["java", f"-Xms{heap}", f"-Xmx{heap}", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{self._jars}/*"]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return bool(self.admin.list_topics(timeout=2).brokers)
        except (OSError, KafkaException):
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        # Its own session, so that nothing of it outlives the test.
        os.killpg(process.pid, how)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_PATIENCE)


def write(
    producer: Producer, topic: str, events: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1
) -> None:
    """Hand pairs to a producer, waiting whenever its queue is full."""
    for key, value in events:
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=partition)
                break
            except BufferError:
                producer.poll(0.2)


def _fetch_jars() -> str:
    """Their folder."""
    command = [sys.executable, "-m", "strandline.jobs.run.jars", "kafka"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        raise RuntimeError(f"Kafka's jars are missing and could not be fetched:\n{fetched.stderr}")
    return fetched.stdout.strip()
