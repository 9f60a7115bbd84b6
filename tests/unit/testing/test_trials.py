"""Trials: a right test passes in each of them, a wrong one fails in each, and each finds what it is there for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.jobs.ivm.refresh import refresh
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.testing.suite import Suite, read_suite
from strandline.jobs.testing.trials import Trial, TrialResult, _epochs, prepared, run_suite, run_trial, trials
from tests.unit.testing.conftest import Written

PIPELINES = Path(__file__).parents[3] / "jobs" / "pipelines"
WITHOUT_JVM = trials(2, 7, kills=True, duckdb=True, spark=False)

RIGHT = """
tests:
  - name: counted, computed, looked up
    steps:
      - given:
          prices: [{item: a, price: 1.10}]
          sold:
            - {item: a, qty: 2, share: 0.1, at: 2024-01-31T00:00:00Z}
            - {item: a, qty: 0, share: 0.2}
            - {ITEM: b, qty: 4, rowtime: '2023-01-01T00:00:00'}
        expect:
          by_item: {rows: [{item: a, n: 2, total: 2, shares: 0.3}, {item: b, n: 1, total: 4}]}
          each:
            rows: [{item: a, each: 50, at: 2024-01-31 00:00:00}, {item: b, each: 25}]
            dead_letters: [{sold_item: a, sold_qty: 0}]
          priced: {rows: [{item: a, price: 1.1}, {item: a, price: 1.1}]}
      - given:
          prices: [{item: a, price: 2}, !delete {item: a}, {item: a, price: 3}]
          sold: [{item: a, qty: 1}]
        expect:
          by_item:
            inserted: [{item: a, n: 3}]
            retracted: [{item: a, n: 2}]
          priced: {inserted: [{item: a, price: 3}], retracted: []}
          prices: {rows: [{price: 3}]}
"""


def outcomes(suite: Suite, settings: Settings, wanted: Sequence[Trial] = WITHOUT_JVM) -> list[TrialResult]:
    with prepared(settings, suite) as (made, cases):
        return list(run_suite(made, cases, wanted))


@pytest.mark.kill
def test_a_right_test_passes_in_every_trial(written: Written, settings: Settings) -> None:
    found = outcomes(written(RIGHT), settings)
    assert [(each.trial.kind, each.faults) for each in found] == [(each.kind, ()) for each in WITHOUT_JVM]


@pytest.mark.parametrize("name", ["longest_visits", "movie_tickets"])
def test_the_examples_tests_pass(name: str, settings: Settings) -> None:
    found = outcomes(
        read_suite(PIPELINES / f"{name}.sql"), settings, trials(1, 3, kills=False, duckdb=True, spark=False)
    )
    assert [each for each in found if not each.passed] == []


@pytest.mark.kill
def test_a_wrong_test_fails_in_every_trial(written: Written, settings: Settings) -> None:
    text = "tests: [{name: one, given: {sold: [{item: a, qty: 1}]}, expect: {by_item: {rows: [{item: a, n: 2}]}}}]"
    for each in outcomes(written(text), settings):
        (fault,) = each.faults
        assert (each.step, list(fault.lines())) == (
            1,
            ["rows of by_item:", "  missing     {item: a, n: 2}", "  unexpected  {item: a, n: 1}"],
        )


@pytest.mark.parametrize(
    ("expected", "what"),
    [
        ("each: {dead_letters: []}", "dead_letters"),
        ("by_item: {inserted: []}", "inserted"),
        ("by_item: {retracted: [{item: a, n: 0}]}", "retracted"),
        ("by_item: {rows: []}", "rows"),
        ("sold: {rows: []}", "rows"),
    ],
)
def test_each_expectation_can_fail(written: Written, settings: Settings, expected: str, what: str) -> None:
    text = f"tests: [{{name: one, given: {{sold: [{{item: a, qty: 0}}]}}, expect: {{{expected}}}}}]"
    (found,) = outcomes(written(text), settings, [Trial("as written")])
    assert [fault.what for fault in found.faults] == [what]


def test_a_view_that_loses_its_second_epoch_is_found_by_cutting(
    written: Written, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, the test is one epoch, and nothing is wrong with that."""
    given = "{sold: [{item: a, qty: 1}, {item: a, qty: 1}]}"
    suite = written(f"tests: [{{name: one, given: {given}, expect: {{by_item: {{rows: [{{n: 2}}]}}}}}}]")
    with prepared(settings, suite) as (made, (case,)):
        folder = made.template.with_name("lake")
        monkeypatch.setattr(refresh, "_run", _only_the_first(refresh._run))
        assert run_trial(made, case, Trial("as written"), folder).passed
        assert not all(run_trial(made, case, Trial("cut", seed), folder).passed for seed in range(8))


def _only_the_first(run: Callable[..., Any]) -> Callable[..., Any]:
    def made(context: Any, heads: Any, epoch: Any, **options: Any) -> Any:
        if epoch.first:
            return run(context, heads, epoch, **options)
        return epoch.done("none", "lost", None)

    return made


def test_the_same_seed_cuts_at_the_same_places(written: Written, settings: Settings) -> None:
    with prepared(settings, written(RIGHT)) as (_, (case,)):
        step = case.steps[0]

        def cut(seed: int) -> list[int]:
            return [len(each) for each in _epochs(step, Trial("cut", seed), Random(seed))]

        assert all(sum(cut(seed)) == len(step.events) for seed in range(20))
        assert cut(3) == cut(3)
        assert len({tuple(cut(seed)) for seed in range(20)}) > 3


def test_nothing_of_the_users_lake_is_touched(written: Written, settings: Settings) -> None:
    outcomes(written(RIGHT), settings, [Trial("as written")])
    assert not Path(str(settings.lake)).exists()


@pytest.mark.parametrize(
    ("test", "error", "said"),
    [
        ("given: {bought: []}, expect: {by_item: {rows: []}}", UnknownName, "unknown stream, table or view 'bought'"),
        ("given: {by_item: [{item: a}]}, expect: {by_item: {rows: []}}", InvalidQuery, "'by_item' is a view"),
        ("given: {sold: [{itm: a}]}, expect: {by_item: {rows: []}}", UnknownName, "'itm'"),
        ("given: {sold: [{item: 1}]}, expect: {by_item: {rows: []}}", TypeMismatch, "takes VARCHAR, not 1"),
        ("given: {sold: [{qty: 1.5}]}, expect: {by_item: {rows: []}}", TypeMismatch, "takes INT, not 1.5"),
        ("given: {prices: [!delete {price: 1}]}, expect: {by_item: {rows: []}}", UnknownName, "'price'"),
        ("expect: {by_item: {rows: [{m: 1}]}}", UnknownName, "'m'"),
        ("expect: {by_item: {rows: [{n: many}]}}", TypeMismatch, "not 'many'"),
    ],
)
def test_names_and_values_are_checked_before_anything_runs(
    written: Written, settings: Settings, test: str, error: type[Exception], said: str
) -> None:
    suite = written(f"tests: [{{name: one, {test}}}]")
    with pytest.raises(error) as refused, prepared(settings, suite):
        pass
    assert said in str(refused.value)
    assert "'one', step 1" in str(refused.value)


def foreign(folder: Path, key: str) -> Suite:
    """A suite of a view over a Delta table that has rows."""
    write_deltalake(
        folder / "orders", pa.table({"id": [1], "shop": ["a"], "at": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]})
    )
    (folder / "shop.sql").write_text(
        f"CREATE TABLE orders WITH (DELTA = '{folder / 'orders'}'{key}, TIMESTAMP = 'at', OWNER = 'team:shop');"
        "CREATE MATERIALIZED VIEW n AS SELECT shop, COUNT(*) AS n FROM orders GROUP BY shop;"
    )
    (folder / "shop.test.yaml").write_text("""
tests:
  - name: rows come and go
    steps:
      - given: {orders: [{id: 1, shop: b, at: 2026-01-01T00:00:00}, {id: 2, shop: b, at: 2026-01-02T00:00:00}]}
        expect: {n: {rows: [{shop: b, n: 2}]}}
      - given: {orders: [!delete {id: 2}]}
        expect: {n: {rows: [{shop: b, n: 1}]}}
""")
    return read_suite(folder / "shop.sql")


def test_rows_of_a_delta_table_are_given_too_and_its_own_are_not_read(tmp_path: Path, settings: Settings) -> None:
    found = outcomes(foreign(tmp_path, ", KEY = 'id'"), settings, trials(2, 7, kills=False, duckdb=True, spark=False))
    assert [each.faults for each in found] == [()] * 3
    assert DeltaTable(tmp_path / "orders").version() == 0


def test_no_rows_are_given_to_a_table_of_others_without_a_key(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(InvalidQuery, match="no KEY"):
        outcomes(foreign(tmp_path, ""), settings, WITHOUT_JVM)
