"""The live records of a topic: the newest of each key, also where partitions were added."""

from __future__ import annotations

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record, partition_for
from strandline.jobs.publish.encoder import live_records
from strandline.jobs.publish.topic import TopicTaken
from strandline.state_store.layout import LakeLayout

OURS = (("strandline.view", b"v"),)


def test_the_newest_record_of_a_key_counts(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    written = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", None), (b"c", b"3")]
    log.produce("t", [Record(key, value, 0, OURS) for key, value in written])
    assert live_records(log, "t", "v", bytes) == {b"a": b"2", b"c": b"3"}


def test_of_two_partitions_the_one_that_the_key_goes_to_now_counts(lake: LakeLayout) -> None:
    """A key's records before partitions were added lie elsewhere."""
    log = LocalLog(lake)
    log.ensure_topic("t", 2)
    keys = [next(key for key in map(str, range(99)) if partition_for(key.encode(), 2, 0) == home) for home in (0, 1)]
    for home, key in enumerate(keys):
        name = key.encode()
        log.produce("t", [Record(name, b"old", 0, OURS, 1 - home), Record(name, b"new", 0, OURS, home)])
    assert set(live_records(log, "t", "v", bytes).values()) == {b"new"}


@pytest.mark.parametrize(
    ("headers", "said"), [((), "no view published"), ((("strandline.view", b"w"),), "of the view 'w'")]
)
def test_records_of_others_are_found(lake: LakeLayout, headers: tuple[tuple[str, bytes], ...], said: str) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", [Record(b"a", b"1", 0, OURS), Record(b"b", b"1", 0, headers)])
    with pytest.raises(TopicTaken, match=said):
        live_records(log, "t", "v", bytes)
