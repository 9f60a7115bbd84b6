"""`strandline compare-state`: the three strategies over a copy of a view's inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.errors import UnknownName
from strandline.jobs.operate.compare_state import STRATEGIES, compare_state
from strandline.state_store.delta import reader
from tests.support.on_disk import on_disk
from tests.support.operated_lake import EPOCHS
from tests.unit.operate.verify.lakes import MadeLake

VIEW = "totals"


def test_all_strategies_follow_the_same_epochs_and_give_the_same_rows(shop: MadeLake) -> None:
    before = _content(on_disk(shop.lake.root))
    found = compare_state(shop.settings, VIEW, epochs=3)
    assert [each.state for each in found.costs] == list(STRATEGIES)
    assert found.epochs == 3
    assert found.changes > 0
    assert found.equal
    full, shared, partial = found.costs
    head = reader.head(shop.lake.table(VIEW))
    assert head is not None
    assert full.rows == shared.rows == head.record.rows
    assert full.stored_bytes
    assert shared.stored_bytes
    assert partial.stored_bytes == 0
    assert partial.memory_bytes
    assert all(each.epoch_seconds and each.read_seconds for each in found.costs)
    assert partial.computed_seconds
    assert partial.load_seconds is None
    assert _content(on_disk(shop.lake.root)) == before, "the live lake is only read"


def test_no_more_commits_are_taken_back_than_there_are(shop: MadeLake) -> None:
    found = compare_state(shop.settings, VIEW, epochs=1_000)
    assert EPOCHS - 1 <= found.epochs < 1_000
    assert found.equal


def test_what_cannot_be_partial_is_said(shop: MadeLake) -> None:
    found = compare_state(shop.settings, "spread", epochs=2)
    assert "cannot be partial" in found.costs[2].refused
    assert "cannot be partial" in str(found)
    assert found.costs[0].rows
    assert found.equal


def test_a_strategy_that_gives_other_rows_is_told(shop: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader.read_rows
    asked = iter(range(100))
    monkeypatch.setattr(reader, "read_rows", lambda path: read(path).slice(1 if next(asked) == 2 else 0))
    found = compare_state(shop.settings, VIEW, epochs=1)
    assert not found.equal
    assert "missing" in found.costs[1].differs or "too many" in found.costs[1].differs


def test_only_a_view_is_compared(shop: MadeLake) -> None:
    with pytest.raises(UnknownName):
        compare_state(shop.settings, "pages")


def _content(root: Path) -> dict[str, bytes]:
    return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}
