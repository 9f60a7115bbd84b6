"""The campaign of flipped bits in small, and that it would see each way to fail."""

from __future__ import annotations

import os
import re
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.campaigns import processes
from tests.campaigns.bitflips import campaign, table
from tests.campaigns.flips import Flip, Outcome, files_by_kind, flipped, judged, planned
from tests.campaigns.lake import make_lake
from tests.support.on_disk import on_disk


def test_a_share_of_the_campaign_finds_nothing_bad() -> None:
    tally, bad = campaign(seed=2, count=27, workers=1)
    assert not bad
    assert {kind: counts.total() for kind, counts in tally.items()} == dict.fromkeys(tally, 1)
    assert len(tally) == 27
    assert table(tally).splitlines()[-1].startswith("| all | 27 |")


def test_a_seed_makes_the_same_files_and_the_same_flips(tmp_path: Path) -> None:
    """So a flip is found again by its number; times and checksums of times differ, and with them sizes."""
    lakes = [on_disk(make_lake(tmp_path / name / "lake", seed=3).root) for name in ("a", "b")]
    names = [
        {kind: [_stable(p.relative_to(root)) for p in paths] for kind, paths in files_by_kind(root).items()}
        for root in lakes
    ]
    assert names[0] == names[1]
    assert all(names[0].values())
    flips = [[_stable(f.file) for f in planned(root, 3, 300)] for root in lakes]
    assert flips[0] == flips[1]


def _stable(file: Path | str) -> str:
    """The name of a file without the checksum that a backup gives its copy: contents may hold times."""
    return re.sub(r"\.[0-9a-f]{8}\Z", "", str(file))


def test_a_flip_is_one_bit_and_put_back_with_its_time(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\0\0\0")
    about = file.stat()
    with flipped(file, 9):
        assert file.read_bytes() == b"\0\2\0"
        assert file.stat().st_mtime_ns == about.st_mtime_ns
    assert file.read_bytes() == b"\0\0\0"
    assert file.stat().st_mtime_ns == about.st_mtime_ns


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("1", Outcome.HARMLESS),
        ("typed: store.corrupt", Outcome.TYPED),
        ("raw: KeyError: x", Outcome.RAW),
        ("2", Outcome.WRONG),
    ],
)
def test_the_worst_answer_counts(answer: str, outcome: Outcome) -> None:
    assert judged({"a": "1", "b": "1"}, {"a": "1", "b": answer})[0] is outcome


@pytest.mark.kill
@pytest.mark.parametrize(("how", "outcome"), [("abort", Outcome.ABORT), ("hang", Outcome.HANG)])
def test_a_reader_that_aborts_or_hangs_is_seen_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, outcome: Outcome
) -> None:
    (tmp_path / "lake").mkdir()
    monkeypatch.setattr(processes, "_read", _aborting if how == "abort" else _hanging)
    if how == "hang":
        monkeypatch.setattr(processes, "SECONDS", 0.5)
    seen: list[Outcome] = []
    flips = [Flip(number, "segment", "x", 0) for number in range(2)]
    processes.run(tmp_path / "lake", flips, 1, lambda _, found, __: seen.append(found))
    assert seen == [outcome, outcome]


def _aborting(_: Path, conn: Connection) -> None:
    conn.send("ready")
    conn.recv()
    os.abort()


def _hanging(_: Path, conn: Connection) -> None:
    conn.send("ready")
    conn.recv()
    time.sleep(600)
