"""Log entries with one wrong bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log
from strandline.state_store.delta.entry import decode, encode
from strandline.state_store.errors import CorruptState

FILE = Path("t/_delta_log/00000000000000000007.json")


def test_every_flipped_bit_of_an_entry_is_found() -> None:
    """Also of one that changes no rows: taken for another tool's, it would be passed over for an older record."""
    data = encode([log.commit_info("WRITE", CommitRecord(epoch=7).identified("a table"))])
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptState):
            decode(bytes(damaged), FILE)


def test_the_entry_of_another_tool_has_no_checksum() -> None:
    data = json.dumps({"commitInfo": {"operation": "OPTIMIZE", "userMetadata": "nightly"}}).encode()
    assert decode(data, FILE)[1] is None
