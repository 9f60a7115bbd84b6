"""Single flipped bits: the kinds of files in a lake, which bits to flip, and what becomes of them."""

from __future__ import annotations

import os
import random
import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_KINDS: Mapping[str, str] = {
    "log entry": r"tables/[^/]+/_delta_log/\d{20}\.json",
    "checkpoint": r"tables/[^/]+/_delta_log/\d{20}\.checkpoint\.parquet",
    "checkpoint's hint": r"tables/[^/]+/_delta_log/_last_checkpoint",
    "data file": r"tables/[^/]+/epoch-.+\.parquet",
    "deletion vector": r"tables/[^/]+/deletion_vector_[^/]+\.bin",
    "catalog file": r"catalog/[^/]+\.json",
    "intent of a replacement": r"catalog/replacing/[^/]+\.json",
    "intent of a drop": r"catalog/dropping/[^/]+\.json",
    "topic.json": r"topics/readings/topic\.json",
    "segment": r"topics/readings/\d{20}\.log",
    "registry file": r"registry/.+\.json",
    "compiled plan": r"compiled/[^/]+\.json",
    "list of definitions": r"definitions\.json",
    "kind of topics": r"topics\.json",
    "mark of a table": r"begun/[^/]+\.json",
    "lease": r"tables/[^/]+/_leases/[^/]+\.json",
    "approval": r"approvals/[^/]+\.json",
    "proof": r"proved/[^/]+\.json",
    "acknowledgement": r"acknowledged/[^/]+\.json",
    "heartbeat": r"runs/[^/]+\.json",
    "drills": r"drills/[^/]+\.json",
    "idempotency key": r"beside/inserts/[^/]+\.json",
    "tokens": r"beside/tokens\.json",
    "backup's file": r"beside/backup/objects/.+",
    "backup's manifest": r"beside/backup/(manifests/[^/]+|latest)\.json",
    "RocksDB": r"beside/rocksdb/(CURRENT|MANIFEST-\d+|\d+\.(log|sst))",
    "LMDB": r"beside/lmdb/data\.mdb",
}


class Outcome(StrEnum):
    """What the readers made of a flip, the worst of their answers; the better ones first."""

    HARMLESS = "harmless"
    TYPED = "typed error"
    RAW = "raw error"
    WRONG = "silently wrong"
    ABORT = "abort"
    HANG = "hang"

    @property
    def bad(self) -> bool:
        """True for what must not happen."""
        return self not in (Outcome.HARMLESS, Outcome.TYPED)


@dataclass(frozen=True)
class Flip:
    """One bit of one file, by its path below the lake's root."""

    number: int
    kind: str
    file: str
    bit: int

    def __str__(self) -> str:
        return f"flip {self.number}: {self.kind} {self.file}, bit {self.bit}"


def files_by_kind(root: Path) -> dict[str, list[Path]]:
    """The files of each kind, in the order of their names."""
    found: dict[str, list[Path]] = {kind: [] for kind in _KINDS}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        for kind, pattern in _KINDS.items():
            if path.is_file() and re.fullmatch(pattern, name):
                found[kind].append(path)
    return found


def planned(root: Path, seed: int, count: int) -> list[Flip]:
    """As many flips of each kind; within a kind each file is as likely as any other, within a file each bit.

    The sizes of files differ by some bytes from lake to lake, as times do, and decide nothing but the bit.
    """
    drawn = random.Random(seed)
    files = files_by_kind(root)
    # A database begins a log that is empty, which has no bit.
    found = {kind: [each for each in paths if each.stat().st_size] for kind, paths in files.items()}
    flips = []
    for number in range(count):
        kind = list(found)[number % len(found)]
        file = drawn.choice(found[kind])
        bit = int(drawn.random() * file.stat().st_size * 8)
        flips.append(Flip(number, kind, file.relative_to(root).as_posix(), bit))
    return flips


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """The file with one bit flipped, and its old time: a disk that rots changes no time. Restored at the end."""
    data, about = path.read_bytes(), path.stat()
    byte = bytes([data[bit // 8] ^ 1 << bit % 8])
    _put(path, bit // 8, byte)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    try:
        yield
    finally:
        path.write_bytes(data)  # a reader may have put it right
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def judged(expected: Mapping[str, str], found: Mapping[str, str]) -> tuple[Outcome, str]:
    """The outcome of a flip by the answers of the readers, and the question that shows it."""
    worst: tuple[Outcome, str] = (Outcome.HARMLESS, "")
    for question, answer in found.items():
        outcome = _outcome(expected[question], answer)
        if _WORSE.index(outcome) > _WORSE.index(worst[0]):
            worst = (outcome, question if outcome is not Outcome.RAW else f"{question}: {answer}")
    return worst


_WORSE: Sequence[Outcome] = tuple(Outcome)


def _outcome(expected: str, answer: str) -> Outcome:
    if answer == expected:
        return Outcome.HARMLESS
    if answer.startswith("typed: "):
        return Outcome.TYPED
    return Outcome.RAW if answer.startswith("raw: ") else Outcome.WRONG


def _put(path: Path, at: int, byte: bytes) -> None:
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(byte)
