"""Views that differ in constants are computed by one statement, and have the rows that each by itself would have."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.refresh import refresh, together
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.ivm.refresh.epoch import Epoch
from strandline.jobs.ivm.refresh.together import Family, family_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.run.refresh_views import refresh_all
from strandline.state_store.delta import heads
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.statements import Statements
from tests.support.invariants import assert_correct
from tests.unit.run.test_untouched import CONSTANTS, PIPELINE, Lake, drawn, view

_SEEDS = int(os.environ.get("STRANDLINE_TOGETHER_EXAMPLES", "3"))
_FAMILIES, _EACH, _EPOCHS = 6, 3, 5
_COMPARED = re.compile(r"\.(n|k) (=|<>|<=|>=|<|>) (-?\d+|'[^']*')")


@pytest.fixture(autouse=True)
def planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have found out of the same views is forgotten."""
    monkeypatch.setattr(compiled, "_KNOWN", {})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is prepared when it is first met."""
    monkeypatch.setattr(Statements, "are_worth", lambda self, of, rule: True)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Epoch]:
    """The epochs whose rows were computed with others, in order."""
    found: list[Epoch] = []
    before = refresh.committed

    def noted(context: RunContext, epoch: Epoch, *, anew: bool) -> Any:
        if epoch.given is not None:
            found.append(epoch)
        return before(context, epoch, anew=anew)

    monkeypatch.setattr(refresh, "committed", noted)
    return found


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with DuckDBEngine("500MB", 1) as made:
        yield made


def siblings(pick: random.Random, text: str, count: int) -> list[str]:
    """The view, and some that differ from it in constants at most."""

    def other(found: re.Match[str]) -> str:
        return f".{found[1]} {found[2]} {pick.choice(CONSTANTS[found[1]])}"

    return [text, *(_COMPARED.sub(other, text) for _ in range(count - 1))]


def compare(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch, given: list[Epoch]) -> Counter[str]:
    """Play a drawn history twice, once without statements for several, and compare after every epoch."""
    pick = random.Random(seed)
    views = [each for _ in range(_FAMILIES) for each in siblings(pick, view(pick), _EACH)]
    monkeypatch.setattr(Statements, "are_worth", lambda self, of, rule: not Path(of).is_relative_to(folder / "plain"))
    with ExitStack() as stack:
        both, plain = (
            Lake(folder / name, views, stack.enter_context(DuckDBEngine("300MB", 1))) for name in ("both", "plain")
        )
        for _ in range(_EPOCHS):
            for name in pick.choice(["s", "s", "t", "st"]):
                rows = [row for _ in range(3) for row in drawn(pick, name)]
                for lake in (both, plain):
                    lake.came(name, *rows)
            for lake in (both, plain):
                lake.refresh()
            assert both.said() == plain.said(), (seed, views)
    return Counter(
        f"{type(each.stage).__name__} {storage_of(each.stage)}" for each in given if each.given and each.given.rows
    )


def test_views_have_the_rows_that_each_by_itself_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[Epoch]
) -> None:
    met = Counter[str]()
    for seed in range(_SEEDS):
        (tmp_path / str(seed)).mkdir()
        given.clear()
        met += compare(seed, tmp_path / str(seed), monkeypatch, given)
    kinds = ("MapStage append", "MapStage keyed", "AggregateStage keyed", "AnalyticStage keyed")
    assert all(met[each] >= _SEEDS for each in kinds), met


def test_the_comparison_finds_constants_of_another_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[Epoch]
) -> None:
    held = together._OfAll._held_side

    def turned(self: Any, side: Any, each: Any) -> pa.Table | None:
        found = held(self, side, each)
        if found is None or each.relation.name != together._CONSTANTS:
            return found
        return pa.table({**dict(zip(found.column_names, found.columns, strict=True)), "number": found["number"][::-1]})

    monkeypatch.setattr(together._OfAll, "_held_side", turned)
    for seed in range(10):
        (tmp_path / str(seed)).mkdir()
        try:
            compare(seed, tmp_path / str(seed), monkeypatch, given)
        except AssertionError:
            return
    pytest.fail("nothing was found")


def families(tmp_path: Path, engine: DuckDBEngine, views: Sequence[str]) -> list[Family | None]:
    lake = Lake(tmp_path, views, engine)
    units = {item.name: item for level in lake.levels for item in level}
    return [family_of(units[f"v{number}"].stages[-1]) for number in range(len(views))]


def test_constants_in_comparisons_are_what_a_family_differs_in(tmp_path: Path, engine: DuckDBEngine) -> None:
    text = "SELECT k, COUNT(*) AS c FROM s WHERE n {} AND k <> {} GROUP BY k"
    one, other, word, value = families(
        tmp_path,
        engine,
        [
            text.format(*each)
            for each in (("> -1", "'a'"), ("> 7", "''"), ("< 7", "'a'"), ("> 7", "CAST(n AS VARCHAR)"))
        ],
    )
    assert one is not None
    assert other is not None
    assert (one.constants, other.constants) == ((-1, "a"), (7, ""))
    assert one.key == other.key
    assert word is not None
    assert value is not None
    assert len({one.key, word.key, value.key}) == 3


@pytest.mark.parametrize("where", ["d > {}", "x > {}", "n + 1 > {}", "n IN ({}, 5)"])
def test_constants_of_other_types_stay_in_the_text(where: str, tmp_path: Path, engine: DuckDBEngine) -> None:
    text = "SELECT k, COUNT(*) AS c FROM s WHERE {} GROUP BY k"
    one, other = families(tmp_path, engine, [text.format(where.format(number)) for number in (1, 2)])
    assert one is not None
    assert other is not None
    assert one.constants == other.constants == ()
    assert one.key != other.key


def test_what_has_one_row_whatever_is_there_has_no_family(tmp_path: Path, engine: DuckDBEngine) -> None:
    assert families(tmp_path, engine, ["SELECT COUNT(*) AS c FROM s WHERE n > 1"]) == [None]


COUNTS = [f"SELECT k, CAST(SUM(n) AS INT) AS c FROM s WHERE n <= {n} GROUP BY k" for n in (10, 100, 2_147_483_647)]


def test_a_commit_says_with_how_many_it_was_computed(
    tmp_path: Path, engine: DuckDBEngine, at_once: None, given: list[Epoch]
) -> None:
    lake = Lake(tmp_path, COUNTS, engine)
    lake.came("s", {"k": "a", "n": 2}, {"k": None, "n": 5})
    lake.refresh()
    assert given == []  # the first refresh reads all rows
    lake.came("s", {"k": "a", "n": 2}, {"k": None, "n": -5})
    lake.refresh()
    assert [each.stage.table for each in given] == ["v0", "v1", "v2"]
    head = heads.head(lake.lake, "v2")
    assert head is not None
    assert "with 2 more that differ in constants" in head.record.reason
    assert_correct(lake.lake, PIPELINE)


def test_one_that_fails_stops_none_of_the_others(
    tmp_path: Path, engine: DuckDBEngine, at_once: None, given: list[Epoch]
) -> None:
    lake = Lake(tmp_path, COUNTS, engine)
    lake.came("s", {"k": "a", "n": 1})
    lake.refresh()
    lake.came("s", {"k": "a", "n": 2_147_483_647})
    done = refresh_all(lake.context, lake.levels, frozenset())
    assert given == []
    assert sorted(done.failures) == ["v2"]
    assert {each.mode for each in done.stages if each.table in ("v0", "v1")} == {"none"}
    lake.came("s", {"k": "b", "n": 1})
    done = refresh_all(lake.context, lake.levels, frozenset())
    assert sorted(done.failures) == ["v2"]
    assert {each.inserted for each in done.stages if each.table in ("v0", "v1")} == {1}
