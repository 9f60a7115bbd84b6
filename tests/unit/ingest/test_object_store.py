"""Topics and schemas of a lake on an object store: the same promises as on a disk."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.schema_registry import Schema

from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record, Records
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import remove_file
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import files_in
from tests.support.lakes import below, overwrite, s3_folder
from tests.support.s3_server import S3Server


@pytest.fixture
def lake(s3_server: S3Server) -> LakeLayout:
    return LakeLayout(s3_folder(s3_server))


def values(count: int, first: int = 0) -> list[Record]:
    return [Record(None, str(n).encode(), n) for n in range(first, first + count)]


def read(log: LocalLog, start: int, end: int, partition: int = 0) -> Records:
    joined = Records(partition)
    for run in log.read("t", partition, start, end):
        joined.extend(run)
    return joined


def test_what_was_produced_is_read_in_every_range(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first, count in ((0, 1), (1, 4), (5, 2)):
        log.produce("t", values(count, first))
    fresh = LocalLog(lake)
    assert (fresh.begin_offsets("t"), fresh.end_offsets("t")) == ({0: 0}, {0: 7})
    for start in range(8):
        for end in range(start, 8):
            assert read(fresh, start, end).timestamps == list(range(start, end))
    assert fresh.size("t", 0, 0, 7) > fresh.size("t", 0, 1, 7) > 0


def test_topics_have_any_name_and_are_made_once(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    assert log.topics() == []
    log.ensure_topic("a/b c", partitions=3)
    made = log.identity("a/b c")
    LocalLog(lake).ensure_topic("a/b c", partitions=9)
    assert (log.topics(), log.identity("a/b c"), len(log.end_offsets("a/b c"))) == (["a/b c"], made, 3)
    with pytest.raises(TopicMissing, match="'t'"):
        log.produce("t", values(1))


def test_racing_producers_lose_and_double_nothing(lake: LakeLayout) -> None:
    LocalLog(lake).ensure_topic("t")

    def produce(writer: int) -> None:
        log = LocalLog(lake)
        for number in range(5):
            log.produce("t", [Record(None, f"{writer}:{number}:{part}".encode(), 0) for part in range(2)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(produce, range(4)))
    found = read(LocalLog(lake), 0, 40)
    texts = [value.decode() for value in found.values if value is not None]
    assert found.offsets == list(range(40))
    assert len(set(texts)) == 40
    assert all(texts[n][:-1] == texts[n + 1][:-1] for n in range(0, 40, 2))


def test_a_lost_answer_doubles_no_record(lake: LakeLayout, s3_server: S3Server) -> None:
    """The put is tried again, finds its own segment, and is not taken for another's."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    s3_server.lose_answers(2)
    assert log.produce("t", values(2)) == [(0, 0), (0, 1)]
    assert log.end_offsets("t") == {0: 2}


def test_damage_and_gaps_are_found(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first in range(0, 6, 2):
        log.produce("t", values(2, first))
    segments = files_in(lake.topic("t"), ".log")
    whole = segments[1].read_bytes()
    overwrite(segments[1], whole[:-1])
    with pytest.raises(CorruptState):
        read(LocalLog(lake), 0, 6)
    overwrite(segments[1], whole)
    remove_file(segments[0])
    with pytest.raises(OffsetsVanished, match="0 to 1"):
        read(LocalLog(lake), 0, 6)
    assert read(LocalLog(lake), 2, 6).timestamps == [2, 3, 4, 5]


def test_schemas_get_one_id_whoever_registers_them(lake: LakeLayout) -> None:
    def avro(name: str) -> Schema:
        return Schema(json.dumps({"type": "record", "name": name, "fields": []}), "AVRO")

    def register(_: int) -> list[int]:
        registry = LocalRegistry(lake.registry)
        return [registry.register_schema("orders-value", avro(name)) for name in ("a", "b")]

    with ThreadPoolExecutor(3) as pool:
        assert len({tuple(sorted(ids)) for ids in pool.map(register, range(3))}) == 1
    registry = LocalRegistry(lake.registry)
    assert registry.get_versions("orders-value") == [1, 2]
    assert {registry.get_version("orders-value", n).schema.schema_str for n in (1, 2)} == {
        avro("a").schema_str,
        avro("b").schema_str,
    }
    assert below(lake.registry) == [
        "ids/00000001.json",
        "ids/00000002.json",
        "subjects/orders-value/00000001.json",
        "subjects/orders-value/00000002.json",
    ]
