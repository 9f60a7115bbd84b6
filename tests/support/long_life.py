"""A table that is written to for a long time, as a writer does: commits, compactions after them, and what they cost."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.delta.merging import maintain_files
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.paths import within
from tests.support.arrow_table import ArrowTable, Row
from tests.support.keyed_table import SCHEMA, SPEC


@dataclass(frozen=True)
class Figures:
    """What a table looks like and costs at one version; milliseconds.

    Attributes:
        commit, slowest: the median and the slowest commit since the figures before, its compaction included.
        cpu: the mean of a commit's processor time, which does not depend on what else the machine does.
        opened: reading its snapshot.
        delta_rs: opening it with delta-rs.
    """

    version: int
    files: int
    rows: int
    entries: int
    checkpoint_kb: int
    commit: float
    slowest: float
    cpu: float
    opened: float
    delta_rs: float

    def __str__(self) -> str:
        return (
            f"{self.version:7,} {self.rows:7,} {self.files:6} {self.entries:8,} {self.checkpoint_kb:8,}"
            f" {self.commit:8.1f} {self.slowest:8.0f} {self.cpu:7.1f} {self.opened:8.1f} {self.delta_rs:8.1f}"
        )


HEADINGS = "version    rows  files  entries  ckpt KB   commit  slowest     cpu    open  delta-rs   (milliseconds)"


class LongLife:
    """One keyed table, of which each commit replaces some keys by their places and brings some new ones.

    Places are found by an index in memory, made anew where a compaction has moved rows: looking for them in the files
    would cost more than all else.
    """

    def __init__(self, path: Path, seed: int = 1, keys: int = 2_000) -> None:
        self.table = ArrowTable(path, SCHEMA, SPEC)
        self.head: Head = self.table.create(CommitRecord(epoch=0))
        self.rows: dict[int, Row] = {}
        self._random = random.Random(seed)
        self._keys = keys
        self._places: dict[int, tuple[str, int]] = {}
        self._spent: list[float] = []
        self._cpu = 0.0

    def live(self, commits: int) -> None:
        """So many commits of four rows, compacted as the writer does."""
        for _ in range(commits):
            new = self._new()
            gone: dict[str, BitMap64] = {}
            for k in new.keys() & self._places.keys():
                name, position = self._places[k]
                gone.setdefault(name, BitMap64()).add(position)
            old = [self.rows[k] for k in new if k in self.rows]
            minus, plus = self._digest(old), self._digest(list(new.values()))
            began, cpu = time.perf_counter(), time.process_time()
            self._commit(new, gone, plus - minus, len(old))
            self._spent.append((time.perf_counter() - began) * 1000)
            self._cpu += (time.process_time() - cpu) * 1000

    def figures(self) -> Figures:
        """What it has come to."""
        from deltalake import DeltaTable

        path = self.table.path
        began = time.perf_counter()
        snapshot = read_snapshot(path, self.head.version)
        opened = time.perf_counter()
        DeltaTable(str(path))
        ended = time.perf_counter()
        spent, self._spent = self._spent, []
        cpu, self._cpu = self._cpu / len(spent), 0.0
        newest = next(log.checkpoints_before(path, self.head.version), None)
        return Figures(
            version=self.head.version,
            files=len(snapshot.files),
            rows=len(self.rows),
            entries=len(log.versions(path)),
            checkpoint_kb=Path(str(log.checkpoint_file(path, newest))).stat().st_size // 1024
            if newest is not None
            else 0,
            commit=median(spent),
            slowest=max(spent),
            cpu=cpu,
            opened=(opened - began) * 1000,
            delta_rs=(ended - opened) * 1000,
        )

    def check(self) -> None:
        """Our reader and delta-rs see the model's rows, and the digest is theirs."""
        expected = Counter((k, row["v"]) for k, row in self.rows.items())
        stored = Counter((row["k"], row["v"]) for row in self.table.stored(self.head.version))
        assert stored == expected
        visible = reader.read_rows(self.table.path)
        assert Counter((row["k"], row["v"]) for row in visible.to_pylist()) == expected
        assert str(digest_of_table(visible.to_batches())) == self.head.record.digest

    def check_feed(self, after: int) -> None:
        """The changes after a version lead from its rows to the present ones."""
        folded = Counter((row["k"], row["v"]) for row in reader.read_rows(self.table.path, after).to_pylist())
        for change in reader.read_changes(self.table.path, after).to_pylist():
            folded[change["k"], change["v"]] += change["__weight"]
        assert +folded == Counter((k, row["v"]) for k, row in self.rows.items())

    def _new(self) -> dict[int, Row]:
        keys = [self._random.randrange(self._keys) for _ in range(4)]
        return {k: {"k": k, "v": f"{self._random.random():.6f}", "__state": {"__n": k}} for k in keys}

    def _commit(self, new: dict[int, Row], gone: dict[str, BitMap64], change: Digest, deleted: int) -> None:
        path, before = self.table.path, self.head.record
        staged = stage_rows(pa.Table.from_pylist(list(new.values()), SCHEMA), path, before.epoch + 1, SPEC.indexed)
        digest = str(Digest.parse(before.digest) + change)
        record = replace(before, epoch=before.epoch + 1, inserted=len(new), deleted=deleted, digest=digest)
        self.head = commit(path, self.head, record, RowChanges(staged, gone))
        name = within(staged.files[0], path)
        self._places |= {k: (name, position) for position, k in enumerate(new)}
        self.rows |= new
        compacted = maintain_files(path, SPEC, self.head)
        if compacted is not None:
            self.head = compacted
            self._places = dict(self._found())

    def _found(self) -> Iterator[tuple[int, tuple[str, int]]]:
        import pyarrow.parquet as pq

        for name, body in read_snapshot(self.table.path, self.head.version).files.items():
            vector = body.get("deletionVector")
            dead: Any = deleted_rows(self.table.path, vector) if vector else ()
            keys = pq.read_table(self.table.path / name, columns=["k"], partitioning=None)["k"].to_pylist()
            yield from ((k, (name, position)) for position, k in enumerate(keys) if position not in dead)

    def _digest(self, rows: list[Row]) -> Digest:
        return digest_of_table(pa.Table.from_pylist(rows, SCHEMA).select(SPEC.visible).to_batches())
