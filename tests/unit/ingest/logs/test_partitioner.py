"""The partitioner is Kafka's: the vectors are those of Kafka's own UtilsTest."""

from __future__ import annotations

import pytest

from strandline.jobs.ingest.logs.log import murmur2, partition_for


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_java_gives(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_a_negative_hash_still_names_a_partition() -> None:
    """Kafka clears the sign bit; the absolute value would give another partition."""
    assert murmur2(b"21") < 0
    assert partition_for(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_records_without_a_key_go_round_robin() -> None:
    assert [partition_for(None, 3, position) for position in range(6)] == [0, 1, 2, 0, 1, 2]


def test_an_empty_key_is_a_key() -> None:
    assert {partition_for(b"", 7, position) for position in range(7)} == {partition_for(b"", 7)}
