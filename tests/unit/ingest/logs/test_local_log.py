"""The local log: dense offsets with many writers, whole files or none, damage found."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.ingest.logs import segment
from jobs.ingest.logs.local_log import LocalLog
from jobs.ingest.logs.log import CHUNK, Record, Records
from jobs.model.errors import OffsetsVanished, TopicMissing
from state_store.errors import CorruptState
from state_store.layout import Lake

WRITERS, APPENDS = 4, 200


def _records(log: LocalLog, topic: str, partition: int, start: int = 0, end: int | None = None) -> Records:
    end = log.end_offsets(topic)[partition] if end is None else end
    joined = Records(partition)
    for run in log.read(topic, partition, start, end):
        assert 0 < len(run) <= CHUNK
        for name in ("offsets", "timestamps", "keys", "values", "headers"):
            getattr(joined, name).extend(getattr(run, name))
    return joined


def _values(count: int, first: int = 0) -> list[Record]:
    return [Record(None, str(n).encode(), n) for n in range(first, first + count)]


def test_a_record_reads_back_as_it_was_written(lake: Lake) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    record = Record(b"k\x00", b"", 1_700_000_000_123, (("h", b"\xff"), ("h", None), ("ü", b"")))
    assert log.produce("t", [record, Record(None, None, 0)]) == [(0, 0), (0, 1)]
    read = _records(log, "t", 0)
    assert (read.offsets, read.timestamps) == ([0, 1], [1_700_000_000_123, 0])
    assert (read.keys, read.values) == ([b"k\x00", None], [b"", None])
    assert read.headers == [[("h", b"\xff"), ("h", None), ("ü", b"")], None]


_PAYLOAD = st.none() | st.binary(max_size=40)
_RECORD = st.builds(
    Record,
    key=_PAYLOAD,
    value=_PAYLOAD,
    timestamp_ms=st.integers(-1, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=5), _PAYLOAD), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_RECORD, min_size=1, max_size=20))
def test_any_records_survive_a_segment(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    path = tmp_path_factory.mktemp("segment") / "file"
    path.write_bytes(segment.encode(records))
    read = segment.decode(path, 3, 70)
    assert segment.count(path) == len(records)
    assert read.offsets == list(range(70, 70 + len(records)))
    assert read.keys == [record.key for record in records]
    assert read.values == [record.value for record in records]
    assert read.timestamps == [record.timestamp_ms for record in records]
    assert [tuple(found or ()) for found in read.headers] == [record.headers for record in records]


def test_every_range_of_offsets_reads_exactly(lake: Lake) -> None:
    """Ranges begin and end inside, between and across files of different sizes."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first, count in ((0, 1), (1, 4), (5, 2), (7, 1)):
        log.produce("t", _values(count, first))
    for start in range(9):
        for end in range(start, 9):
            assert _records(log, "t", 0, start, end).offsets == list(range(start, end))


def test_large_files_are_cut_and_small_ones_joined(lake: Lake) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(2 * CHUNK + 5))
    for number in range(3):
        log.produce("t", _values(1, number))
    runs = [len(run) for run in log.read("t", 0, 0, 2 * CHUNK + 8)]
    assert runs == [CHUNK, CHUNK, 8]


def _append(root: Path, writer: int) -> None:
    log = LocalLog(Lake(root))
    for number in range(APPENDS):
        log.produce("t", [Record(None, f"{writer}:{number}:{part}".encode(), 0, partition=0) for part in range(2)])


def test_many_writing_processes_lose_and_double_nothing(lake: Lake) -> None:
    """4 processes × 200 appends of two records: dense offsets, each append once, its records side by side, and the
    appends of one writer in its order. 200 are enough for hundreds of lost races on two cores."""
    LocalLog(lake).ensure_topic("t")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append, args=(lake.root, writer)) for writer in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    log = LocalLog(lake)
    total = 2 * WRITERS * APPENDS
    assert log.end_offsets("t") == {0: total}
    read = _records(log, "t", 0)
    assert read.offsets == list(range(total))
    texts = [value.decode() for value in read.values if value is not None]
    assert max(Counter(texts).values()) == 1
    assert all(texts[n][:-1] == texts[n + 1][:-1] for n in range(0, total, 2))
    for writer in range(WRITERS):
        mine = [text for text in texts if text.startswith(f"{writer}:")]
        assert mine == [f"{writer}:{number}:{part}" for number in range(APPENDS) for part in range(2)]
    assert not list(lake.topic("t").glob("**/.*"))


def test_two_instances_see_each_others_records(lake: Lake) -> None:
    """What an instance remembers of a partition's end is only where to look first."""
    one, other = LocalLog(lake), LocalLog(lake)
    one.ensure_topic("t")
    for number in range(5):
        one.produce("t", _values(2))
        assert other.end_offsets("t") == {0: 4 * number + 2}
        other.produce("t", _values(2))
        assert one.end_offsets("t") == {0: 4 * number + 4}


def test_ten_thousand_small_files_read_in_seconds(lake: Lake) -> None:
    """An INSERT per event makes a file per event. The files are written without the log's syncs, to test reading."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    for number in range(10_000):
        data = segment.encode([Record(None, str(number).encode(), number)])
        (lake.topic("t") / "0" / f"{number:020d}.log").write_bytes(data)
    began = time.monotonic()
    fresh = LocalLog(lake)
    read = _records(fresh, "t", 0)
    assert read.timestamps == list(range(10_000))
    assert len(list(fresh.read("t", 0, 0, 10_000))) == 1
    assert time.monotonic() - began < 10


def test_keyed_records_go_where_kafka_sends_them(lake: Lake) -> None:
    from jobs.ingest.logs.partitioner import partition_for

    log = LocalLog(lake)
    log.ensure_topic("t", partitions=5)
    keys = [f"key {n}".encode() for n in range(50)]
    places = log.produce("t", [Record(key, b"", 0) for key in keys])
    assert [partition for partition, _ in places] == [partition_for(key, 5) for key in keys]
    for (partition, offset), key in zip(places, keys, strict=True):
        assert _records(log, "t", partition, offset, offset + 1).keys == [key]


def test_a_topic_is_made_once(lake: Lake) -> None:
    log = LocalLog(lake)
    log.ensure_topic("a/b c", partitions=3)
    log.ensure_topic("a/b c", partitions=9)
    assert log.topics() == ["a/b c"]
    assert log.exists("a/b c")
    assert not log.exists("a")
    assert log.end_offsets("a/b c") == {0: 0, 1: 0, 2: 0}


def test_a_missing_topic_is_named(lake: Lake) -> None:
    log = LocalLog(lake)
    for ask in (lambda: log.end_offsets("t"), lambda: log.produce("t", _values(1))):
        with pytest.raises(TopicMissing, match="'t'"):
            ask()


@pytest.mark.parametrize("position", [0, 5, 17, 22, 24, 30, -1])
def test_a_flipped_bit_is_found(lake: Lake, position: int) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(3))
    (path,) = (lake.topic("t") / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(CorruptState, match="does not read back"):
        list(log.read("t", 0, 0, 3))


def test_a_cut_file_is_found(lake: Lake) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(3))
    (path,) = (lake.topic("t") / "0").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptState):
        list(log.read("t", 0, 0, 3))


def test_removed_files_are_never_skipped_silently(lake: Lake) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first in range(0, 6, 2):
        log.produce("t", _values(2, first))
    files = sorted((lake.topic("t") / "0").iterdir())
    files[1].unlink()
    with pytest.raises(CorruptState, match="offset 2"):
        list(log.read("t", 0, 0, 6))
    files[0].unlink()
    assert log.begin_offsets("t") == {0: 4}
    with pytest.raises(OffsetsVanished, match="0 to 3"):
        list(log.read("t", 0, 0, 6))
