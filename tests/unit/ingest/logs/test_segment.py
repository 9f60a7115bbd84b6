"""The bytes of a topic: any records survive them, and no flipped bit goes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.support.examples import examples
from tests.support.on_disk import on_disk

_PAYLOAD = st.none() | st.binary(max_size=40)
_RECORD = st.builds(
    Record,
    key=_PAYLOAD,
    value=_PAYLOAD,
    timestamp_ms=st.integers(-1, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=5), _PAYLOAD), max_size=3).map(tuple),
    partition=st.integers(0, 2),
)
_Read = dict[int, list[tuple[object, ...]]]


def _everything(lake: LakeLayout) -> _Read:
    """All that the topic holds, by a process that opens it for the first time: {partition: records}."""
    log = LocalLog(lake)
    assert log.topics() == ["t"]
    begins, ends = log.begin_offsets("t"), log.end_offsets("t")
    runs = {number: list(log.read("t", number, begins[number], ends[number])) for number in ends}
    return {
        number: [
            (offset, *record)
            for run in found
            for offset, *record in zip(run.offsets, run.timestamps, run.keys, run.values, run.headers, strict=True)
        ]
        for number, found in runs.items()
    }


@settings(deadline=None, max_examples=examples(8))
@given(st.lists(st.lists(_RECORD, max_size=8), max_size=5))
def test_any_records_come_back_in_their_partitions(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[Record]]
) -> None:
    lake = LakeLayout(tmp_path_factory.mktemp("lake"))
    log = LocalLog(lake)
    log.ensure_topic("t", 3)
    expected: _Read = {0: [], 1: [], 2: []}
    for records in calls:
        for record, place in zip(records, log.produce("t", records), strict=True):
            assert record.partition is not None
            rows = expected[record.partition]
            assert place == (record.partition, len(rows))
            headers = list(record.headers) or None
            rows.append((len(rows), record.timestamp_ms, record.key, record.value, headers))
    assert _everything(lake) == expected


def test_every_flipped_bit_of_a_topic_is_found_or_changes_nothing(lake: LakeLayout) -> None:
    """All bits of all files: `topic.json` and two segments, one of several partitions, one of a single one."""
    log = LocalLog(lake)
    log.ensure_topic("t", 3)
    log.produce("t", [Record(b"k", b"v", 1, (("h", b"x"),), partition=0), Record(None, None, 2, partition=2)])
    log.produce("t", [Record(b"k", b"w", 3, partition=0)])
    whole = _everything(lake)
    found = harmless = 0
    for path in sorted(on_disk(lake.topic("t")).iterdir()):
        data = path.read_bytes()
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            try:
                assert _everything(lake) == whole, f"{path.name}: bit {bit}"
                harmless += 1
            except StrandlineError:
                found += 1
        path.write_bytes(data)
    assert _everything(lake) == whole
    assert found > 20 * harmless


@pytest.mark.parametrize("kept", [0, 1, 20, 100, -1])
def test_a_cut_segment_is_found(lake: LakeLayout, kept: int) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", [Record(b"k", b"v", 1), Record(b"k", b"w", 2)])
    path: Path = next(iter(on_disk(lake.topic("t")).glob("*.log")))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StrandlineError, match="does not read back"):
        _everything(lake)
