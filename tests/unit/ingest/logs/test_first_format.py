"""A topic of format 1 goes on: its records are read, and new ones come behind them."""

from __future__ import annotations

import struct
import zlib

import pytest

from strandline.jobs.ingest.logs import record_bytes
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.errors import OffsetsVanished
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import Lake
from tests.support.on_disk import on_disk


def _old_segment(first: int, count: int) -> bytes:
    body = b"".join(record_bytes.encode(_record(offset)) for offset in range(first, first + count))
    header = struct.pack("<4sIQI", b"STL1", count, len(body), zlib.crc32(body))
    return header + struct.pack("<I", zlib.crc32(header)) + body


def _record(number: int, partition: int = 0) -> Record:
    return Record(None, str(number).encode(), number, partition=partition)


@pytest.fixture
def old(lake: Lake) -> LocalLog:
    """Partition 0 has five records in two segments, partition 1 none."""
    for partition in range(2):
        on_disk(lake.topic("t") / str(partition)).mkdir(parents=True)
    on_disk(lake.topic("t") / "topic.json").write_text('{"format": 1, "topic": "t", "partitions": 2}')
    for first, count in ((0, 2), (2, 3)):
        on_disk(lake.topic("t") / "0" / f"{first:020d}.log").write_bytes(_old_segment(first, count))
    return LocalLog(lake)


def _numbers(log: LocalLog, start: int, end: int, partition: int = 0) -> list[int]:
    runs = list(log.read("t", partition, start, end))
    assert [offset for run in runs for offset in run.offsets] == list(range(start, end))
    return [int(value or b"") for run in runs for value in run.values]


def test_old_records_are_read(old: LocalLog) -> None:
    assert (old.begin_offsets("t"), old.end_offsets("t")) == ({0: 0, 1: 0}, {0: 5, 1: 0})
    assert old.identity("t").id == ""
    for start in range(5):
        for end in range(start, 6):
            assert _numbers(old, start, end) == list(range(start, end))


def test_new_records_follow_the_old_ones(old: LocalLog, lake: Lake) -> None:
    assert old.produce("t", [_record(5), _record(0, partition=1), _record(6)]) == [(0, 5), (1, 0), (0, 6)]
    assert old.produce("t", [_record(7)]) == [(0, 7)]
    for log in (old, LocalLog(lake)):
        assert (log.begin_offsets("t"), log.end_offsets("t")) == ({0: 0, 1: 0}, {0: 8, 1: 1})
        for start in range(8):
            for end in range(start, 9):
                assert _numbers(log, start, end) == list(range(start, end))
        assert _numbers(log, 0, 1, partition=1) == [0]


def test_old_records_that_are_gone_are_told(old: LocalLog, lake: Lake) -> None:
    old.produce("t", [_record(5)])
    first, second = sorted(on_disk(lake.topic("t") / "0").iterdir())
    data = first.read_bytes()
    first.unlink()
    with pytest.raises(OffsetsVanished, match="0 to 1 are gone"):
        _numbers(old, 0, 6)
    first.write_bytes(data)
    second.unlink()
    with pytest.raises(CorruptState, match="offset 2"):
        _numbers(old, 0, 6)


def test_a_flipped_bit_in_an_old_segment_is_found(old: LocalLog, lake: Lake) -> None:
    path = on_disk(lake.topic("t") / "0" / f"{0:020d}.log")
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptState):
            _numbers(old, 0, 2)
