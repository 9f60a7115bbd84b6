"""Event logs of Kafka, whose offsets may have gaps; and the rows of queries that insert into a stream."""

from __future__ import annotations

from typing import NoReturn

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import SourceUnavailable
from strandline.jobs.operate.verify.findings import Outcome
from strandline.jobs.operate.verify.inputs import check_offsets, check_topic
from strandline.jobs.operate.verify.subjects import Opened, opened, subjects
from tests.unit.operate.verify.damage import said
from tests.unit.operate.verify.lakes import MadeLake


def _opened(made: MadeLake, table: str) -> tuple[Opened, Source]:
    (subject,) = subjects([table], made.catalog, made.lake)[:1]
    assert isinstance(subject.definition, Source)
    return opened(subject), subject.definition


def _offsets(made: MadeLake, dense: bool) -> Outcome:
    table, source = _opened(made, "visits")
    return check_offsets(table, source, made.lake, made.log, dense=dense)


def test_offsets_of_kafka_may_have_gaps(made: MadeLake) -> None:
    said(made.lake.table("visits"), offsets={"clicks": {"0": 7, "1": 5}})
    assert _offsets(made, dense=True).ok is False
    assert _offsets(made, dense=False).ok is True


def test_no_offset_of_kafka_stands_twice_or_above_the_recorded_one(made: MadeLake) -> None:
    said(made.lake.table("visits"), offsets={"clicks": {"0": 3, "1": 3}})
    assert _offsets(made, dense=False).what == "partition 1 holds offset 3, and the record says it ends at 3"


def test_an_event_that_is_a_dead_letter_too_stands_twice(made: MadeLake) -> None:
    made.dead_letter(0, 2)
    assert _offsets(made, dense=False).what == "offset 2 of partition 0 stands twice"


def test_dead_letters_may_be_ahead_of_the_event_log(made: MadeLake) -> None:
    """They are committed first: a kill in between leaves it so."""
    made.dead_letter(0, 3)
    assert _offsets(made, dense=True).ok is True


def test_rows_of_queries_into_the_stream_are_no_records_of_its_topic(made: MadeLake) -> None:
    event = made.tables["visits"].stored(1)[0]
    made.tables["visits"].apply([{**event, "_partition": 65_536}])
    assert _offsets(made, dense=True).ok is True


def test_a_topic_without_an_id_and_a_broker_that_is_down_are_said(made: MadeLake) -> None:
    class Down(LocalLog):
        def identity(self, topic: str) -> NoReturn:
            raise SourceUnavailable(f"no answer for '{topic}'")

    table, source = _opened(made, "visits")
    assert check_topic(table, source, Down(made.lake)).ok is None
    said(made.lake.table("visits"), topics={})
    table, source = _opened(made, "visits")
    found = check_topic(table, source, made.log)
    assert (found.ok, found.what) == (None, "the record has no id")
