"""The proofs of a view hold on a healthy lake, and each fails where its fault is planted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import Verdict
from strandline.jobs.model.definitions import View
from strandline.jobs.operate.verify.verify import PROOFS, prove
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.operate.verify.lakes import MadeLake


def proofs(made: MadeLake, name: str) -> dict[str, Verdict]:
    catalog = Catalog(made.lake)
    view = catalog.get(name)
    assert isinstance(view, View)
    return {each.check: each for each in prove(view, made.settings, catalog, made.lake)}


@pytest.mark.parametrize("view", ["totals", "owned", "spread"])
def test_a_healthy_view_is_proved(view: str, made: MadeLake) -> None:
    found = proofs(made, view)
    assert tuple(found) == tuple(PROOFS)
    assert [each for each in found.values() if not each.ok] == []


def test_a_view_without_a_commit_has_nothing_to_prove(made: MadeLake) -> None:
    assert list(
        Interpreter(made.settings, "shop").run("CREATE TABLE w AS SELECT page, MAX(n) AS n FROM totals GROUP BY page;")
    )
    assert all(each.ok for each in proofs(made, "w").values())


def wrong_row(made: MadeLake) -> None:
    made.refresh("totals", [{"page": "z", "n": 9, "seconds": 0.0}], None, ["visits"])


def negative_count(made: MadeLake) -> None:
    made.refresh("totals", [{"page": "z", "n": -1, "seconds": 0.0}], None, ["visits"])


def lost_file(made: MadeLake) -> None:
    next(made.lake.table("totals").rglob("*.parquet")).unlink()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("plant", "failing"),
    [
        (wrong_row, {"recompute"}),
        (negative_count, {"recompute", "counts"}),
    ],
)
def test_a_planted_fault_turns_its_proof_red(
    plant: Callable[[MadeLake], None], failing: set[str], made: MadeLake
) -> None:
    plant(made)
    assert {each.check for each in proofs(made, "totals").values() if each.ok is False} == failing


def test_a_broken_file_is_found_and_named(made: MadeLake) -> None:
    lost_file(made)
    found = proofs(made, "totals")
    assert {each.check for each in found.values() if each.ok is False} & {"storage", "feed"}
