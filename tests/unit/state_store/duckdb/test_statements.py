"""Statements that stay prepared: other rows each time, and never those of another text, table or time."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from strandline.state_store.duckdb import statements
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.statements import Held, Statements

SUM = "SELECT SUM(n) AS s, COUNT(*) AS c FROM given WHERE n > 1"


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with DuckDBEngine("100MB", 1) as made:
        yield made


@pytest.fixture
def opened(engine: DuckDBEngine) -> list[duckdb.DuckDBPyConnection]:
    """The connections that were opened; `engine.statements` opens them."""
    found: list[duckdb.DuckDBPyConnection] = []

    def open_() -> duckdb.DuckDBPyConnection:
        found.append(engine.cursor())
        return found[-1]

    engine.statements = Statements(open_, most=2)
    return found


def given(*numbers: int | None, kind: pa.DataType | None = None) -> dict[str, pa.Table]:
    return {"given": pa.table({"n": pa.array(numbers, kind or pa.int32())})}


def summed(
    engine: DuckDBEngine, rows: dict[str, pa.Table], *, of: str = "t", text: str = SUM
) -> tuple[int | None, int]:
    [row] = engine.statements.run(of, text, [], rows).to_pylist()
    return row["s"], row["c"]


def test_one_statement_reads_other_rows_each_time(
    engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection]
) -> None:
    assert summed(engine, given(1, 2, 3)) == (5, 2)
    assert summed(engine, given(10, None)) == (10, 1)
    assert summed(engine, given()) == (None, 0)
    assert summed(engine, given(*range(50_000))) == (1_249_974_999, 49_998)
    assert len(opened) == 1


def test_rows_of_other_columns_are_read_by_another(
    engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection]
) -> None:
    assert summed(engine, given(1, 2)) == (2, 1)
    assert summed(engine, given(2**40, kind=pa.int64())) == (2**40, 1)
    assert len(opened) == 2


def test_a_view_is_part_of_what_is_prepared(engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection]) -> None:
    def counted(where: str) -> int:
        views = [f"CREATE OR REPLACE TEMP VIEW seen AS SELECT * FROM given WHERE {where}"]
        rows = given(1, 2, 3)
        text = "SELECT COUNT(*) AS c FROM seen AS a JOIN seen AS b USING (n)"
        [row] = Held(engine.statements, "t", views, rows).run(text).to_pylist()
        return int(row["c"])

    assert [counted("n > 1"), counted("n > 2"), counted("n > 1")] == [2, 1, 2]
    assert len(opened) == 2


def test_one_that_fails_is_prepared_anew(engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection]) -> None:
    text = "SELECT SUM(CASE WHEN n < 0 THEN error('negative') ELSE n END) AS s, COUNT(*) AS c FROM given"
    assert summed(engine, given(1), text=text) == (1, 1)
    with pytest.raises(duckdb.InvalidInputException, match="negative"):
        summed(engine, given(-1), text=text)
    assert summed(engine, given(2), text=text) == (2, 1)
    assert len(opened) == 2


def test_those_not_used_for_longest_go(engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection]) -> None:
    for of in ("a", "b", "a", "c", "a", "b"):
        assert summed(engine, given(2), of=of) == (2, 1)
    assert len(opened) == 4


def test_a_text_is_worth_it_from_the_second_time_on(engine: DuckDBEngine) -> None:
    asked = [("t", "SELECT 1"), ("t", "SELECT 2"), ("u", "SELECT 1"), ("t", "SELECT 1"), ("t", "SELECT 1")]
    assert [engine.statements.are_worth(*each) for each in asked] == [False, False, False, True, True]


def test_where_there_is_no_room_only_those_that_are_there_stay(
    engine: DuckDBEngine, opened: list[duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worth() -> list[bool]:
        return [engine.statements.are_worth(of, SUM) for of in ("a", "b", "c")]

    worth()
    assert worth() == [True, True, True]
    for of in ("a", "b"):
        summed(engine, given(2), of=of)
    assert worth() == [True, True, False]
    monkeypatch.setattr(statements, "_UNUSED_SECONDS", 0.0)
    assert worth() == [True, True, True]
    assert len(opened) == 2


def test_rows_are_not_kept_beyond_their_epoch(engine: DuckDBEngine) -> None:
    before = pa.total_allocated_bytes()
    summed(engine, given(*range(200_000)))
    assert pa.total_allocated_bytes() - before < 100_000
