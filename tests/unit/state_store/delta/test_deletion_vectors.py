"""Deletion vectors are decoded as Delta's protocol writes them, or refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.errors import CorruptState, VersionGone

# The protocol's own example of a vector's file name.
NAME = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
ON_DISK = "ab^-aqEH.-t@S}K{vb[*k^"


def _runs(values: Sequence[int]) -> bytes:
    spans: list[list[int]] = []
    for value in values:
        if spans and spans[-1][1] == value - 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return struct.pack("<H", len(spans)) + b"".join(struct.pack("<HH", a, b - a) for a, b in spans)


def _plain(values: Sequence[int]) -> bytes:
    if len(values) <= 4096:
        return struct.pack(f"<{len(values)}H", *values)
    bits = bytearray(8192)
    for value in values:
        bits[value // 8] |= 1 << value % 8
    return bytes(bits)


def _bitmap(values: Sequence[int], runs: bool) -> bytes:
    """Roaring's portable form, written plainly."""
    keys = sorted({v >> 16 for v in values})
    blocks = {key: [v & 0xFFFF for v in values if v >> 16 == key] for key in keys}
    headers = b"".join(struct.pack("<HH", key, len(blocks[key]) - 1) for key in keys)
    offsets = bytes(4 * len(keys))  # a reader that goes from front to back does not need them
    bodies = b"".join((_runs if runs else _plain)(blocks[key]) for key in keys)
    if not runs:
        return struct.pack("<II", 12346, len(keys)) + headers + offsets + bodies
    flags = bytearray((len(keys) + 7) // 8)
    for place in range(len(keys)):
        flags[place // 8] |= 1 << place % 8
    cookie = struct.pack("<I", 12347 | (len(keys) - 1) << 16)
    return cookie + bytes(flags) + headers + (offsets if len(keys) >= 4 else b"") + bodies


def _content(positions: Sequence[int], runs: bool) -> bytes:
    highs = sorted({p >> 32 for p in positions})
    maps = (struct.pack("<I", h) + _bitmap([p & 0xFFFFFFFF for p in positions if p >> 32 == h], runs) for h in highs)
    return struct.pack("<iQ", 1681511377, len(highs)) + b"".join(maps)


def _write(table: Path, content: bytes, cardinality: int) -> dict[str, Any]:
    file = table / "ab" / f"deletion_vector_{NAME}.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    body = struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    file.write_bytes(b"\x01" + body)
    return {
        "storageType": "u",
        "pathOrInlineDv": ON_DISK,
        "offset": 1,
        "sizeInBytes": len(content),
        "cardinality": cardinality,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


POSITIONS = st.sets(st.integers(0, 300_000) | st.integers(2**32, 2**32 + 200_000), min_size=1, max_size=60).map(sorted)


@given(POSITIONS, st.booleans())
def test_positions_are_read_back(folder: Path, positions: list[int], runs: bool) -> None:
    descriptor = _write(folder, _content(positions, runs), len(positions))
    assert list(deleted_rows(folder, descriptor)) == positions


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("positions", [range(5000), range(0, 400_000, 3), range(65_530, 65_540)])
def test_dense_blocks_are_read_back(folder: Path, positions: Sequence[int], runs: bool) -> None:
    descriptor = _write(folder, _content(positions, runs), len(positions))
    assert list(deleted_rows(folder, descriptor)) == list(positions)


def test_an_example_of_deltas_own_tests_inline_in_the_log(tmp_path: Path) -> None:
    descriptor = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    assert list(deleted_rows(tmp_path, descriptor)) == [3, 4, 7, 11, 18, 29]


def test_a_vector_that_is_gone_says_so(tmp_path: Path) -> None:
    descriptor = _write(tmp_path, _content([1], False), 1)
    (tmp_path / "ab" / f"deletion_vector_{NAME}.bin").unlink()
    with pytest.raises(VersionGone):
        deleted_rows(tmp_path, descriptor)


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Page checksums do not cover these files; their own does."""
    descriptor = _write(tmp_path, _content([1, 5, 70_000], False), 3)
    file = tmp_path / "ab" / f"deletion_vector_{NAME}.bin"
    good = file.read_bytes()
    for byte in range(1, len(good)):
        file.write_bytes(good[:byte] + bytes([good[byte] ^ 4]) + good[byte + 1 :])
        with pytest.raises(CorruptState):
            deleted_rows(tmp_path, descriptor)
    for size in range(1, len(good)):
        file.write_bytes(good[:size])
        with pytest.raises(CorruptState):
            deleted_rows(tmp_path, descriptor)


def test_a_vector_outside_the_table_is_not_followed(tmp_path: Path) -> None:
    descriptor = {
        "storageType": "p",
        "pathOrInlineDv": "s3://other/dv.bin",
        "offset": 1,
        "sizeInBytes": 1,
        "cardinality": 1,
    }
    with pytest.raises(CorruptState, match="lies elsewhere"):
        deleted_rows(tmp_path, descriptor)


def test_the_number_of_rows_must_be_the_stated_one(tmp_path: Path) -> None:
    with pytest.raises(CorruptState, match="lost rows"):
        deleted_rows(tmp_path, _write(tmp_path, _content([1, 2], False), 3))
