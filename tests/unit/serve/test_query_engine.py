"""Queries that share a database: none sees what another brought, and none can change what holds for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.jobs.functions.python import Library, registered
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import FunctionRefused, InvalidQuery, UnknownName
from strandline.jobs.serve.errors import TooLarge
from strandline.jobs.serve.query_engine import QueryDatabase, QueryEngine
from strandline.jobs.serve.terms import QueryBudget, QueryLimits
from tests.support.python_function_stage import MODULE, function

NO_FUNCTIONS = Library((), ())
MEMORY = 64 << 20


@pytest.fixture
def database() -> Iterator[QueryDatabase]:
    with QueryDatabase(MEMORY) as database:
        yield database


def engine(database: QueryDatabase, library: Library = NO_FUNCTIONS, memory: int | None = MEMORY) -> QueryEngine:
    return QueryEngine(library, QueryBudget(QueryLimits(memory_bytes=memory)), database)


def value(duck: QueryEngine, sql: str) -> object:
    return duck.query(sql, {}).column(0)[0].as_py()


def test_tables_are_known_to_their_own_query_while_it_runs(database: QueryDatabase) -> None:
    with engine(database) as first, engine(database) as second:
        assert first.query("SELECT SUM(a) AS n FROM t", {"t": pa.table({"a": [1, 2]})}).to_pylist() == [{"n": 3}]
        with pytest.raises(InvalidQuery, match="t does not exist"):
            second.query("SELECT * FROM t", {})
        assert second.query("SELECT a FROM t", {"t": pa.table({"a": [7]})}).to_pylist() == [{"a": 7}]
        assert value(first, "SELECT SUM(a) FROM t") == 3


def test_what_a_query_makes_is_gone_with_it(database: QueryDatabase) -> None:
    with engine(database) as first:
        first.define("CREATE SCHEMA ours; CREATE TABLE ours.made AS SELECT 1 AS a; CREATE MACRO twice(x) AS 2 * x")
        assert value(first, "SELECT twice(a) FROM ours.made") == 2
    with engine(database) as second, pytest.raises(UnknownName, match="unknown function 'twice'"):
        second.query("SELECT twice(1)", {})


def test_what_does_not_fit_is_refused_and_not_put_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"a": pa.array(range(4_000_000), pa.int64())})
    heavy = "SELECT a, ROW_NUMBER() OVER (ORDER BY a * 7919 % 4000037) AS n, REPEAT('x', 40) AS x FROM t ORDER BY x, n"
    with QueryDatabase(MEMORY) as database, engine(database) as first, pytest.raises(TooLarge):
        first.query(heavy, {"t": rows})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "setting", ["TimeZone = 'Asia/Tokyo'", "memory_limit = '9GB'", "enable_external_access = true"]
)
def test_the_settings_of_all_are_locked(database: QueryDatabase, setting: str) -> None:
    for scope in ("", "SESSION", "GLOBAL"):
        with engine(database) as first, pytest.raises(duckdb.Error, match="locked"):
            first.define(f"SET {scope} {setting}")


def test_the_clock_is_in_utc_and_nothing_of_the_process_is_read(
    database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_nowhere = pa.table({"a": [1]})
    assert seen_nowhere.num_rows == 1
    with engine(database) as first:
        assert value(first, "SELECT current_setting('TimeZone')") == "UTC"
        assert value(first, "SELECT current_setting('python_enable_replacements')") is False
        with pytest.raises(InvalidQuery, match="seen_nowhere does not exist"):
            first.query("SELECT * FROM seen_nowhere", {})
        with pytest.raises(InvalidQuery):
            first.query("SELECT * FROM read_csv('/etc/passwd')", {})


def test_a_function_that_is_defined_anew_is_another_one(database: QueryDatabase) -> None:
    older = function("INITIALS", [t.VARCHAR], t.VARCHAR, "initials")
    newer = function("INITIALS", [t.INT], t.DOUBLE, "fails")
    for made, argument, expected in ((older, "'Ada Lovelace'", "AL"), (newer, "1", 1.0), (older, "NULL", "?")):
        with engine(database, Library([made], [MODULE])) as duck:
            assert value(duck, f"SELECT {registered(made)}({argument})") == expected


def test_a_function_that_may_not_run_any_more_is_refused(database: QueryDatabase) -> None:
    made = function("INITIALS", [t.VARCHAR], t.VARCHAR, "initials")
    calls = f"SELECT {registered(made)}('Ada Lovelace')"
    with engine(database, Library([made], [MODULE])) as first:
        assert value(first, calls) == "AL"
    with engine(database, Library([made], [])) as second, pytest.raises(FunctionRefused):
        second.query(calls, {})


def test_a_query_that_fails_leaves_its_memory_to_the_next(database: QueryDatabase) -> None:
    large = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT i, i::VARCHAR FROM range({rows}) AS r(i))"
    for _ in range(2):
        with engine(database) as duck, pytest.raises(TooLarge):
            duck.query(large.format(rows=20_000_000), {})
        with engine(database) as duck:
            assert value(duck, large.format(rows=10_000)) == 10_000


def test_another_bound_has_a_database_of_its_own(database: QueryDatabase) -> None:
    with engine(database, memory=32 << 20) as duck:
        assert value(duck, "SELECT current_setting('memory_limit')") == "32.0 MiB"
    with engine(database) as duck:
        assert value(duck, "SELECT current_setting('memory_limit')") == "64.0 MiB"
