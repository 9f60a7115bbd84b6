"""The file of an approval: what a failing disk makes of it is told from what an earlier version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.jobs.expect.expectations import Approval, read_approval, write_approval
from strandline.state_store.commits import TableVersion
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout

APPROVED = Approval("asked", approved=TableVersion(7, "table", "nonce"))


def test_no_flipped_bit_changes_what_is_approved(tmp_path: Path) -> None:
    lake = LakeLayout(tmp_path)
    write_approval(lake, "sales", APPROVED)
    assert read_approval(lake, "sales") == APPROVED
    file = Path(str(lake.approval("sales")))
    whole = file.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(CorruptState):
            read_approval(lake, "sales")


def test_one_of_an_earlier_version_approves_nothing(tmp_path: Path) -> None:
    lake = LakeLayout(tmp_path)
    write_approval(lake, "sales", APPROVED)
    file = Path(str(lake.approval("sales")))
    members = json.loads(file.read_bytes())
    del members["crc"]
    file.write_text(json.dumps(members))
    assert read_approval(lake, "sales") == Approval("")
