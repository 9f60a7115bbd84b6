"""The local log: dense offsets with many writers, whole files or none, damage found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import CHUNK, CHUNK_BYTES, Record, Records
from strandline.jobs.ingest.logs.segments import SegmentHeader, Segments, TopicFile
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.examples import AT_LENGTH
from tests.support.on_disk import on_disk
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.warm_process import warm_processes

FILES = 10_000 if AT_LENGTH else 2_000
"""An INSERT per event makes a file per event."""

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


def test_a_record_reads_back_as_it_was_written(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    record = Record(b"k\x00", b"", 1_700_000_000_123, (("h", b"\xff"), ("h", None), ("ü", b"")))
    assert log.produce("t", [record, Record(None, None, 0)]) == [(0, 0), (0, 1)]
    read = _records(log, "t", 0)
    assert (read.offsets, read.timestamps) == ([0, 1], [1_700_000_000_123, 0])
    assert (read.keys, read.values) == ([b"k\x00", None], [b"", None])
    assert read.headers == [[("h", b"\xff"), ("h", None), ("ü", b"")], None]


def test_every_range_of_offsets_reads_exactly(lake: LakeLayout) -> None:
    """Ranges begin and end inside, between and across files of different sizes."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first, count in ((0, 1), (1, 4), (5, 2), (7, 1)):
        log.produce("t", _values(count, first))
    for start in range(9):
        for end in range(start, 9):
            assert _records(log, "t", 0, start, end).offsets == list(range(start, end))


def test_large_files_are_cut_and_small_ones_joined(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(2 * CHUNK + 5))
    for number in range(3):
        log.produce("t", _values(1, number))
    runs = [len(run) for run in log.read("t", 0, 0, 2 * CHUNK + 8)]
    assert runs == [CHUNK, CHUNK, 8]


def _append(root: Path, writer: int) -> None:
    log = LocalLog(LakeLayout(root))
    for number in range(APPENDS):
        log.produce("t", [Record(None, f"{writer}:{number}:{part}".encode(), 0, partition=0) for part in range(2)])


def test_many_writing_processes_lose_and_double_nothing(lake: LakeLayout) -> None:
    """4 processes × 200 appends of two records: dense offsets, each append once, its records side by side, and the
    appends of one writer in its order. 200 are enough for hundreds of lost races on two cores."""
    LocalLog(lake).ensure_topic("t")
    context = warm_processes()
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
    assert not list(on_disk(lake.topic("t")).glob("**/.*"))


def test_two_instances_see_each_others_records(lake: LakeLayout) -> None:
    """What an instance remembers of a partition's end is only where to look first."""
    one, other = LocalLog(lake), LocalLog(lake)
    one.ensure_topic("t")
    for number in range(5):
        one.produce("t", _values(2))
        assert other.end_offsets("t") == {0: 4 * number + 2}
        other.produce("t", _values(2))
        assert one.end_offsets("t") == {0: 4 * number + 4}


def test_many_small_files_are_read_by_those_of_the_range(lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """An INSERT per event makes a file per event. Written without the syncs, to test reading: one partition's range
    opens no file of the other."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    log = LocalLog(lake)
    log.ensure_topic("t", 2)
    for number in range(FILES):
        log.produce("t", [Record(None, str(number).encode(), number, partition=number % 10 == 0)])
    opened: list[int] = []
    header = Segments.header

    def told(self: Segments, number: int) -> SegmentHeader:
        opened.append(number)
        return header(self, number)

    monkeypatch.setattr(Segments, "header", told)
    fresh = LocalLog(lake)
    assert len(list(fresh.read("t", 0, 0, FILES * 9 // 10))) == 1
    opened.clear()
    assert _records(fresh, "t", 1, 0, FILES // 10).timestamps == list(range(0, FILES, 10))
    assert len(opened) < FILES // 10 + 50


def test_keyed_records_go_where_kafka_sends_them(lake: LakeLayout) -> None:
    from strandline.jobs.ingest.logs.log import partition_for

    log = LocalLog(lake)
    log.ensure_topic("t", partitions=5)
    keys = [f"key {n}".encode() for n in range(50)]
    places = log.produce("t", [Record(key, b"", 0) for key in keys])
    assert [partition for partition, _ in places] == [partition_for(key, 5) for key in keys]
    for (partition, offset), key in zip(places, keys, strict=True):
        assert _records(log, "t", partition, offset, offset + 1).keys == [key]


def test_a_topic_is_made_once(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("a/b c", partitions=3)
    log.ensure_topic("a/b c", partitions=9)
    assert log.topics() == ["a/b c"]
    assert log.exists("a/b c")
    assert not log.exists("a")
    assert log.end_offsets("a/b c") == {0: 0, 1: 0, 2: 0}


def test_a_missing_topic_is_named(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    for ask in (lambda: log.end_offsets("t"), lambda: log.produce("t", _values(1))):
        with pytest.raises(TopicMissing, match="'t'"):
            ask()


def test_a_cut_file_is_found(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(3))
    (path,) = on_disk(lake.topic("t")).glob("*.log")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptState):
        list(log.read("t", 0, 0, 3))


def test_removed_files_are_never_skipped_silently(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    for first in range(0, 6, 2):
        log.produce("t", _values(2, first))
    files = sorted(on_disk(lake.topic("t")).glob("*.log"))
    files[1].unlink()
    with pytest.raises(CorruptState, match="offset 3"):
        list(log.read("t", 0, 0, 6))
    files[0].unlink()
    assert log.begin_offsets("t") == {0: 4}
    with pytest.raises(OffsetsVanished, match="0 to 3"):
        list(log.read("t", 0, 0, 6))


def test_a_file_of_another_number_or_topic_is_found(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    for topic in ("t", "u"):
        log.ensure_topic(topic)
        for _ in range(2):
            log.produce(topic, _values(2))
    files = sorted(on_disk(lake.topic("t")).glob("*.log"))
    for other in (files[0], lake.topic("u") / files[1].name):
        files[1].write_bytes(other.read_bytes())
        with pytest.raises(CorruptState, match="does not read back"):
            LocalLog(lake).end_offsets("t")


def test_large_records_are_read_a_few_at_a_time(lake: LakeLayout) -> None:
    """Runs are bounded by bytes too; only a record that is larger by itself is a run of its own."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    sizes = [CHUNK_BYTES // 8] * 20 + [2 * CHUNK_BYTES, 1]
    log.produce("t", [Record(None, bytes(size), 1) for size in sizes])
    runs = list(log.read("t", 0, 0, len(sizes)))
    assert [len(value or b"") for run in runs for value in run.values] == sizes
    assert all(len(run) == 1 or sum(len(value or b"") for value in run.values) <= CHUNK_BYTES for run in runs)
    assert len(runs) < len(sizes) / 2


def test_a_topic_removed_under_a_producer_is_missing(lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    taken = LocalLog._head

    def removed_meanwhile(self: LocalLog, described: TopicFile) -> SegmentHeader:
        head = taken(self, described)
        shutil.rmtree(on_disk(lake.topic("t")))
        return head

    monkeypatch.setattr(LocalLog, "_head", removed_meanwhile)
    with pytest.raises(TopicMissing, match="removed while"):
        log.produce("t", _values(1))
    assert not lake.topic("t").exists()


def test_a_second_topic_under_a_running_instance_begins_at_zero(lake: LakeLayout) -> None:
    """What an instance remembers of a topic's end does not outlive the topic."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", _values(5))
    shutil.rmtree(on_disk(lake.topic("t")))
    LocalLog(lake).ensure_topic("t")
    assert log.end_offsets("t") == {0: 0}
    assert log.produce("t", _values(1)) == [(0, 0)]


_TOO_LARGE = """
import resource, sys
from pathlib import Path
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.state_store.errors import DiskFailed
from strandline.state_store.layout import LakeLayout

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    LocalLog(LakeLayout(Path(sys.argv[1]))).produce("t", [Record(None, bytes(100), 1)] * 1000)
except DiskFailed:
    print("refused")
"""


def test_an_insert_that_does_not_fit_the_disk_leaves_nothing(lake: LakeLayout) -> None:
    """The process may write 4096 bytes to a file: as with a full disk, a part of the segment is written."""
    log = LocalLog(lake)
    log.ensure_topic("t")
    child = subprocess.run(
        [sys.executable, "-c", _TOO_LARGE, str(lake.root)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert child.stdout == "refused\n"
    assert [path.name for path in on_disk(lake.topic("t")).iterdir()] == ["topic.json"]
    assert log.produce("t", _values(1)) == [(0, 0)]
