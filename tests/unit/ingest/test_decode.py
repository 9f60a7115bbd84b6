"""From records to rows of a source: good or broken, never dropped; event time from the record or a column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from strandline.jobs.ingest.decode import Decoder
from strandline.jobs.ingest.logs.log import Records
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Kind, Source
from strandline.jobs.model.types import SqlType


def source(kind: Kind = "stream", timestamp: tuple[str, SqlType, str | None] | None = None) -> Source:
    columns = [Column("id", t.VARCHAR, key=True), Column("n", t.INT)]
    if timestamp is not None:
        columns.append(Column(timestamp[0], timestamp[1]))
    return Source(
        "s",
        kind,
        tuple(columns),
        "topic",
        "KAFKA",
        "JSON",
        "p",
        "",
        timestamp=timestamp[0] if timestamp else None,
        timestamp_format=timestamp[2] if timestamp else None,
    )


def decoder(of: Source, seconds_ahead: float = 0) -> Decoder:
    """With the Arrow form of `decoded_schema`, and a second source's column beside the first's."""
    instant = t.TIMESTAMP.arrow()
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    offsets = [(name, pa.int64()) for name in ("next", "first", "good", "broken")]
    times = [(name, instant) for name in ("first_time", "running_time")]
    ends = pa.struct([*offsets, *times, ("leader_epoch", pa.int32())])
    fields = [
        ("_source", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", instant),
        ("_running_time", instant),
        ("_headers", header),
        ("_key", pa.binary()),
        ("_value", pa.binary()),
        ("_error", pa.string()),
        ("_tombstone", pa.bool_()),
        ("s0", pa.struct([(column.name, column.type.arrow()) for column in of.columns])),
        ("s1", pa.struct([("other", pa.int32())])),
        ("_range", ends),
    ]
    return Decoder(of, 0, pa.schema(fields), lambda: None, seconds_ahead)


def records(*values: bytes | Mapping[str, object] | None, key: bytes | None = b"k", first: int = 0) -> Records:
    """One record per value, a second apart."""
    payloads = [json.dumps(value).encode() if isinstance(value, Mapping) else value for value in values]
    count = len(payloads)
    offsets = list(range(first, first + count))
    return Records(3, offsets, [1000 * (offset + 1) for offset in offsets], [key] * count, payloads, [None] * count)


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def second(number: float) -> datetime:
    return datetime.fromtimestamp(number, UTC)


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_a_record_without_a_column_that_is_not_null_is_broken(kind: Kind) -> None:
    of = replace(source(kind), columns=(Column("id", t.VARCHAR, key=True), Column("n", t.INT, required=True)))
    there, missing, null, gone = rows(decoder(of).decode(records({"n": 1}, {}, {"n": None}, None)))
    wrong = "column 'n' is null, and it is NOT NULL"
    assert [row["_error"] for row in (there, missing, null)] == [None, wrong, wrong]
    assert gone["_error"] == ("no value" if kind == "stream" else None)  # of a table it is a tombstone


def test_a_good_record_is_its_columns_and_a_broken_one_its_bytes() -> None:
    good, broken = rows(decoder(source()).decode(records({"N": 1}, b"x")))
    assert good["s0"] == {"id": "k", "n": 1}
    assert (good["_error"], good["_key"], good["_value"], good["s1"], good["_range"]) == (None,) * 5
    assert (broken["s0"], broken["_key"], broken["_value"]) == (None, b"k", b"x")
    assert "not JSON" in broken["_error"]
    assert [(row["_source"], row["_partition"], row["_offset"]) for row in (good, broken)] == [("s", 3, 0), ("s", 3, 1)]


def test_running_time_goes_on_from_batch_to_batch_without_the_broken() -> None:
    """A broken record is not in the event log, so it must not make a later event late there."""
    made = decoder(source())
    first = records({"n": 1}, {"n": 2}, b"x", {"n": 3})
    first.timestamps = [5000, 3000, 9000, 4000]
    assert [row["_running_time"] for row in rows(made.decode(first))] == [second(5), second(5), None, second(5)]
    later = records({"n": 4}, {"n": 5}, first=4)
    later.timestamps = [1000, 6000]
    assert [row["_running_time"] for row in rows(made.decode(later))] == [second(5), second(6)]
    (closing,) = rows(made.close(3, 9))
    times = {"first_time": second(5), "running_time": second(6)}
    assert closing["_range"] == {"next": 9, "first": 0, "good": 5, "broken": 2, "leader_epoch": None} | times
    assert (closing["_source"], closing["_partition"], closing["_offset"]) == ("s", 3, None)


def test_a_range_closes_with_the_leader_s_term_of_its_last_record() -> None:
    made = decoder(source())
    for term, batch in ((3, records({"n": 1})), (4, records({"n": 2}, b"x", first=1)), (None, records(first=3))):
        batch.leader_epoch = term
        made.decode(batch)
    (closing,) = rows(made.close(3, 9))
    assert (closing["_range"]["broken"], closing["_range"]["leader_epoch"]) == (2, 4)


def test_a_range_without_records_still_closes() -> None:
    (closing,) = rows(decoder(source()).close(3, 7))
    assert closing["_range"] == dict.fromkeys(closing["_range"]) | {"next": 7}


def test_a_stream_needs_values_and_a_table_keys() -> None:
    assert rows(decoder(source()).decode(records(None)))[0]["_error"] == "no value"
    assert rows(decoder(source("table")).decode(records({"n": 1}, key=None)))[0]["_error"] == "no key"
    keyless = rows(decoder(source()).decode(records({"n": 1}, key=None)))[0]
    assert (keyless["_error"], keyless["s0"]) == (None, {"id": None, "n": 1})


def test_a_null_value_deletes_in_a_table() -> None:
    found = rows(decoder(source("table")).decode(records({"n": 1}, None)))
    assert [row["_tombstone"] for row in found] == [False, True]
    assert [row["_error"] for row in found] == [None, None]
    assert found[1]["s0"] == {"id": "k", "n": None}


@pytest.mark.parametrize(
    ("kind", "pattern", "value", "expected"),
    [
        (t.BIGINT, None, 1500, 1.5),
        (t.TIMESTAMP, None, "1970-01-01T00:00:02Z", 2),
        (t.VARCHAR, None, "1970-01-01T00:00:03Z", 3),
        (t.VARCHAR, "dd.MM.yyyy HH:mm", "01.01.1970 00:01", 60),
    ],
)
def test_event_time_from_a_column(kind: SqlType, pattern: str | None, value: object, expected: float) -> None:
    found = rows(decoder(source(timestamp=("at", kind, pattern))).decode(records({"at": value})))
    assert found[0]["_timestamp"] == second(expected)


@pytest.mark.parametrize("value", [None, "noon", 10**18])
def test_an_event_without_its_time_is_broken(value: object) -> None:
    kind = t.VARCHAR if isinstance(value, str) else t.BIGINT
    found = rows(decoder(source(timestamp=("at", kind, None))).decode(records({"at": value})))
    assert found[0]["_error"].startswith("timestamp column 'at'")
    assert found[0]["_timestamp"] == second(1)


@pytest.mark.parametrize(
    ("kind", "far"), [(t.BIGINT, 253_402_300_799_000), (t.TIMESTAMP, "9999-12-31"), (t.VARCHAR, "9999-12-31")]
)
def test_an_event_far_ahead_of_its_record_is_broken_and_makes_nothing_late(kind: SqlType, far: object) -> None:
    near: object = 61_000 if kind == t.BIGINT else "1970-01-01T00:01:01Z"
    made = decoder(source(timestamp=("at", kind, None)), seconds_ahead=60)
    found = rows(made.decode(records({"at": near}, {"at": far}, {"at": near})))
    assert [row["_error"] is None for row in found] == [True, False, True]
    assert found[1]["_error"].startswith("timestamp column 'at': 9999-12-31T")
    assert found[1]["_error"].endswith("is more than 60 s after the record's own time, 1970-01-01T00:00:02+00:00")
    assert found[1]["_timestamp"] == second(2)
    assert [row["_running_time"] for row in found] == [second(61), None, second(61)]
    assert (made.tally.good, made.tally.broken, made.tally.running_time) == (2, 1, 61_000_000)


def test_just_within_the_limit_is_good_and_just_beyond_is_not() -> None:
    """A record's own time is second 1."""
    for at, good in ((61_000, True), (61_001, False), (-5_000_000_000, True)):
        found = rows(decoder(source(timestamp=("at", t.BIGINT, None)), 60).decode(records({"at": at})))
        assert (found[0]["_error"] is None) is good


def test_without_a_limit_or_a_time_to_compare_any_event_time_is_good() -> None:
    far = {"at": 253_402_300_799_000}
    assert rows(decoder(source(timestamp=("at", t.BIGINT, None))).decode(records(far)))[0]["_error"] is None
    timeless = records(far)
    timeless.timestamps = [-1]
    assert rows(decoder(source(timestamp=("at", t.BIGINT, None)), 60).decode(timeless))[0]["_error"] is None
    own = records({"n": 1})
    own.timestamps = [253_402_300_799_000]
    assert rows(decoder(source(), 60).decode(own))[0]["_error"] is None


def test_a_tombstone_has_the_records_own_time() -> None:
    found = rows(decoder(source("table", ("at", t.BIGINT, None))).decode(records({"at": 77000}, None)))
    assert [row["_timestamp"] for row in found] == [second(77), second(2)]


@pytest.mark.parametrize("stamp", [-1, 2**62])
def test_a_record_without_a_usable_time_is_broken(stamp: int) -> None:
    """Brokers let producers write any 64-bit number."""
    strange = records({"n": 1}, {"n": 2})
    strange.timestamps[0] = stamp
    found = rows(decoder(source()).decode(strange))
    assert [row["_error"] for row in found] == ["no timestamp", None]
    assert found[1]["_running_time"] == second(2)


def test_headers_keep_order_doubles_and_nulls() -> None:
    mixed = records({"n": 1}, {"n": 2})
    mixed.headers[1] = [("b", b"1"), ("a", None), ("b", b"")]
    found = rows(decoder(source()).decode(mixed))
    assert found[0]["_headers"] == []
    assert [(h["key"], h["value"]) for h in found[1]["_headers"]] == [("b", b"1"), ("a", None), ("b", b"")]
