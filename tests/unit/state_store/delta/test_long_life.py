"""Hundreds of commits: what a table costs does not grow, and whatever upkeep does in between, all readers agree."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.checkpoint import removed_actions
from strandline.state_store.delta.cleanup import DAY_MS, clean, plan_cleanup
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.compaction import FANOUT, compact, plan_compaction
from strandline.state_store.delta.entry import Action
from strandline.state_store.delta.merging import EVERY
from strandline.state_store.delta.snapshot import read_snapshot
from tests.support.arrow_table import ArrowTable
from tests.support.examples import AT_LENGTH, examples
from tests.support.keyed_table import having, head_of, made, rows
from tests.support.lakes import delta_rs
from tests.support.long_life import LongLife

# Enough for files that are merged of merged ones, twice.
COMMITS = 600 if AT_LENGTH else 300


def test_hundreds_of_commits_leave_a_few_files(tmp_path: Path) -> None:
    table = LongLife(tmp_path / "t", keys=500)
    most = 0
    for _ in range(COMMITS // 50):
        table.live(50)
        most = max(most, table.figures().files)
    assert most <= EVERY + 4 * (FANOUT - 1)
    assert table.head.record.epoch == COMMITS
    assert COMMITS + COMMITS // EVERY - 2 <= table.head.version <= COMMITS + COMMITS // EVERY + 2
    table.check()
    table.check_feed(0)
    table.check_feed(table.head.version - 60)


def test_a_checkpoint_keeps_one_removal_for_each_file(tmp_path: Path) -> None:
    """Enough to keep another tool's vacuum from it, while an epoch removes each file that it takes a row from."""
    table = made(tmp_path)
    for first in range(0, 200, 20):
        table.apply(rows(range(first, first + 20)))
    make_checkpoint(table.path, 10)
    for last in range(5):
        table.apply(gone=having(range(last, 200, 20)))
    make_checkpoint(table.path, 15)
    kept = removed_actions(log.checkpoint_file(table.path, 15), 0)["remove"].to_pylist()
    removals = [a["remove"] for n in range(11, 16) for a in log.read_actions(table.path, n) if "remove" in a]
    assert len(removals) == 50
    assert len(kept) < 20
    assert {each["path"] for each in kept} == {each["path"] for each in removals}
    assert _vectors(kept) == _vectors(removals)


def _vectors(removals: Iterable[Action]) -> set[str]:
    return {each["deletionVector"]["pathOrInlineDv"] for each in removals if each.get("deletionVector")}


OPERATIONS = st.lists(
    st.sampled_from(["insert", "insert", "update", "delete", "compact", "their compact", "checkpoint", "clean"]),
    min_size=4,
    max_size=24,
)


@given(operations=OPERATIONS, seed=st.randoms(use_true_random=False))
@settings(max_examples=examples(4))
def test_any_history_with_upkeep_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], seed: random.Random
) -> None:
    table = made(tmp_path_factory.mktemp("history"))
    model: dict[int, str] = {}
    history = {0: Counter(model.items())}
    first = 0
    for operation in ["insert"] * (FANOUT - 1) + operations:
        keys = {k for k in model if seed.random() < 0.3}
        match operation:
            case "insert":
                start = max(model, default=0) + 1
                new = rows(range(start, start + seed.randrange(1, 20)))
                model |= {row["k"]: row["v"] for row in new}
                table.apply(new)
            case "update":
                new = [{"k": k, "v": str(seed.random()), "__state": None} for k in sorted(keys)]
                model |= {row["k"]: row["v"] for row in new}
                table.apply(new, having(keys))
            case "delete":
                model = {k: v for k, v in model.items() if k not in keys}
                table.apply(gone=having(keys))
            case "compact":
                _compact(table)
            case "their compact":
                delta_rs(table.path).optimize.compact()
            case "checkpoint":
                make_checkpoint(table.path, head_of(table).version)
            case "clean":
                # Forty days later, as far as the clean-up knows: all but the newest version is past the horizon.
                plan = plan_cleanup(table.path, log.now_ms() + 40 * DAY_MS)
                clean(plan)
                first = plan.first
        history[head_of(table).version] = Counter(model.items())
    _check(table, {version: rows for version, rows in history.items() if version >= first})


def _compact(table: ArrowTable) -> None:
    head = head_of(table)
    snapshot = read_snapshot(table.path, head.version)
    plan = plan_compaction(snapshot)
    if plan.merges:
        assert compact(table.path, table.spec, head, snapshot, plan).record.epoch == head.record.epoch


def _check(table: ArrowTable, history: dict[int, Counter[tuple[int, str]]]) -> None:
    first = min(history)
    for version, expected in history.items():
        assert Counter((row["k"], row["v"]) for row in table.stored(version)) == expected
        at_version = delta_rs(table.path, version=version)
        theirs = QueryBuilder().register("t", at_version).execute("SELECT k, v FROM t")
        assert Counter((row["k"], row["v"]) for row in pa.table(theirs.read_all()).to_pylist()) == expected
        changes = reader.read_changes(table.path, first, version)
        folded = Counter(history[first])
        for change in changes.to_pylist():
            folded[change["k"], change["v"]] += change["__weight"]
        assert +folded == expected
