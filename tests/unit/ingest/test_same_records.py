"""Records that were read and then cut off by an unclean election are noticed, whatever stands in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from strandline.jobs.ingest.logs.log import Log, TopicIdentity
from strandline.jobs.ingest.source import IntakeRange, TopicsReader
from strandline.jobs.ingest.topics import check_same_records
from strandline.jobs.model.errors import RecordsReplaced, revive
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.unit.ingest.committed import EVENTS, commit


@dataclass
class _Topic:
    """Partition 0 of a topic: the term of each of its records, from offset `begin`."""

    terms: list[int]
    begin: int = 0
    now: int | None = None
    looks: list[dict[int, int]] = field(default_factory=list)

    def identity(self, _topic: str) -> TopicIdentity:
        return TopicIdentity("id", {0: self.now if self.now is not None else self.terms[-1]})

    def begin_offsets(self, _topic: str) -> dict[int, int]:
        return {0: self.begin}

    def end_offsets(self, _topic: str) -> dict[int, int]:
        return {0: self.begin + len(self.terms)}

    settled_ends = end_offsets

    def span(self, _topic: str, _partition: int, start: int, end: int) -> int:
        return max(end - start, 0)

    def wait(self, _offsets: Mapping[str, Mapping[int, int]], _seconds: float) -> None:
        """Nothing ever comes."""

    def leader_epochs(self, _topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        self.looks.append(dict(offsets))
        return {partition: self.terms[offset - self.begin] for partition, offset in offsets.items()}


def checked(lake: LakeLayout, topic: _Topic) -> bool:
    terms = dict(topic.identity("events").leader_epochs)
    return check_same_records([EVENTS], lake, cast("Log", topic), {"events": terms})


def test_another_record_at_the_offset_of_the_last_one_read_is_an_error(lake: LakeLayout) -> None:
    commit(lake, {"0": 6}, "id", leader_epochs={"0": [5, 3]})
    assert checked(lake, _Topic([3, 3, 3, 3, 3, 3, 4]))
    cut_off = _Topic([3, 3, 3, 4, 4, 4, 4, 4])
    with pytest.raises(RecordsReplaced, match="partition 0: the record at offset 5 was read in term 3") as caught:
        checked(lake, cut_off)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("type: strandline rebuild events")
    assert isinstance(revive(f"Traceback …\n{caught.value}\nat org.apache…"), RecordsReplaced)


def test_dead_letters_count_too(lake: LakeLayout) -> None:
    commit(lake, {"0": 6}, "id", "events__dead_letters", leader_epochs={"0": [5, 3]})
    with pytest.raises(RecordsReplaced):
        checked(lake, _Topic([3, 3, 3, 4, 4, 4]))


def test_a_leader_of_an_older_term_is_an_error(lake: LakeLayout) -> None:
    commit(lake, {"0": 6}, "id", leader_epochs={"0": [5, 3]})
    with pytest.raises(RecordsReplaced, match="its leader is in term 2 now"):
        checked(lake, _Topic([2] * 6))


def test_a_record_that_is_not_shown_yet_is_looked_for_again(lake: LakeLayout) -> None:
    """A new leader shows its last records late."""
    commit(lake, {"0": 6}, "id", leader_epochs={"0": [5, 3]})
    assert not checked(lake, _Topic([3, 3, 3], now=4))


def test_a_record_that_retention_removed_says_nothing(lake: LakeLayout) -> None:
    commit(lake, {"0": 6}, "id", leader_epochs={"0": [5, 3]})
    assert checked(lake, _Topic([4, 4], begin=6))


def test_a_run_looks_at_its_start_and_after_each_election(settings: Settings, lake: LakeLayout) -> None:
    commit(lake, {"0": 6}, "id", leader_epochs={"0": [5, 3]})
    schema: Any = None
    reader = TopicsReader(IntakeRange(settings, lake, (EVENTS,), {"events": "id"}, {"events": {"0": 6}}), schema)
    topic = _Topic([3] * 6)
    reader._log = cast("Log", topic)
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"topics": {"events": {"0": 6}}}
    reader.latestOffset(start, reader.getDefaultReadLimit())
    assert topic.looks == [{0: 5}]
    topic.terms[3:] = [4] * 5
    with pytest.raises(RecordsReplaced):
        reader.latestOffset(start, reader.getDefaultReadLimit())
