"""A store in RocksDB whose files were damaged: an error at once, and no reader that never ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.store import Write


def kinds(manifest: bytes) -> list[int]:
    """The places of the bytes that say what kind each record is of."""
    found, place = [], 0
    while place + 7 <= len(manifest) and manifest[place + 6]:
        found.append(place + 6)
        place += 7 + int.from_bytes(manifest[place + 4 : place + 6], "little")
    return found


def test_a_record_of_another_kind_in_the_manifest_is_corrupt_state(tmp_path: Path) -> None:
    """Found by the campaign of flipped bits: RocksDB never opened where a bit made it a record of a used file."""
    path = tmp_path / "rocksdb"
    for number in range(3):
        store = RocksStore(path)
        store.write(Write(state=b"state %d" % number, keys=[b"row"], values=[b"value"]))
        store.close()
    manifest = path / (path / "CURRENT").read_text().strip()
    whole = manifest.read_bytes()
    places = kinds(whole)
    assert len(places) > 3
    for place in places:
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            manifest.write_bytes(damaged)
            with pytest.raises(CorruptState):
                RocksStore(path)
    manifest.write_bytes(whole)
    store = RocksStore(path)
    with store.snapshot() as snapshot:
        assert snapshot.state() == b"state 2"
    store.close()
