"""The intent of a replacement on a disk that rots: no flipped bit makes another intent of it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.intents import Replacement, find_replacement, put_replacement
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.types import BIGINT
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout

INTENT = Replacement(
    Source("s", "stream", (Column("n", BIGINT),), "s", "KAFKA", "JSON", "p", "CREATE STREAM s …"),
    epoch=6,
    table="s",
    shared=("shared_a",),
)


def _file(lake: LakeLayout) -> Path:
    (file,) = (Path(str(lake.catalog)) / "replacing").glob("*.json")
    return file


def test_a_flipped_bit_makes_no_other_intent(tmp_path: Path) -> None:
    """The epoch and the table say whether the swap is done: another epoch would end one that has not begun."""
    lake = LakeLayout(tmp_path / "lake")
    put_replacement(INTENT, lake)
    file = _file(lake)
    written = file.read_bytes()
    for bit in range(len(written) * 8):
        data = bytearray(written)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        with suppress(CorruptState):
            assert find_replacement("s", lake) == INTENT, f"bit {bit}: {bytes(data)!r}"
    file.write_bytes(written)
    assert find_replacement("s", lake) == INTENT


def test_an_intent_of_before_checksums_is_read(tmp_path: Path) -> None:
    lake = LakeLayout(tmp_path / "lake")
    put_replacement(INTENT, lake)
    document = json.loads(_file(lake).read_bytes())
    del document["crc"]
    _file(lake).write_text(json.dumps({**document, "format": intents.FORMAT}))
    assert find_replacement("s", lake) == INTENT
