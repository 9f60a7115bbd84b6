"""The file of a local topic: the first one written stays, and damage is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.ingest.logs.segments import TOPIC_FILE, read_topic_file, write_topic_file
from strandline.state_store.errors import CorruptState


def test_the_first_file_stays(tmp_path: Path) -> None:
    write_topic_file(tmp_path, "a/b", 3)
    first = read_topic_file(tmp_path / TOPIC_FILE)
    write_topic_file(tmp_path, "a/b", 5)
    assert read_topic_file(tmp_path / TOPIC_FILE) == first
    assert (first.topic, first.partitions, len(first.id)) == ("a/b", 3, 32)


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{}", '{"format": 3, "crc": 1}', '{"format": 1, "topic": "t", "partitions": 2}']
)
def test_what_is_no_such_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / TOPIC_FILE
    path.write_text(text)
    with pytest.raises(CorruptState, match="describes a local topic"):
        read_topic_file(path)


def test_every_flipped_bit_is_found_or_changes_nothing(tmp_path: Path) -> None:
    write_topic_file(tmp_path, "tüpic", 3)
    path = tmp_path / TOPIC_FILE
    whole, data = read_topic_file(path), path.read_bytes()
    found = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert read_topic_file(path) == whole
        except CorruptState:
            found += 1
    assert found > 7 * len(data)
