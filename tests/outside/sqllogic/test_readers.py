"""How files are read, and what counts as equal. No line of a suite is in here."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.outside.sqllogic import compare, read_regress, read_slt
from tests.outside.sqllogic.plain import Plain
from tests.outside.sqllogic.script import Form, LeftOut, Query, Record, Statement

LOOPED = """
# a comment
statement ok
CREATE TABLE t (a INT)

foreach word one two
loop i 0 2
statement ok
INSERT INTO t VALUES (${i}) -- ${word}

endloop
endloop

skipif duckdb
query I
SELECT 1
----
2

query IT nosort
SELECT a,
  'x y'
FROM t
----
0\tx y
1\tx y

statement error
SELECT b
----
no column b
"""
REGRESS = "-- about t\nSELECT i,\n  j FROM t;\nINSERT INTO t VALUES (1);\nSELECT k FROM t;\n"
PRINTED = """-- about t
SELECT i,
  j FROM t;
 i | j
---+----
 1 | 10
 2 |
(2 rows)

INSERT INTO t VALUES (1);
SELECT k FROM t;
ERROR:  there is no k
"""


def read(text: str, folder: Path, form: Form = "tabbed") -> list[Record]:
    file = folder / "own.test"
    file.write_text(text)
    return list(read_slt.read(file, folder, form).records)


def test_loops_are_unrolled_and_conditions_leave_records_out(tmp_path: Path) -> None:
    records = read(LOOPED, tmp_path)
    inserts = [each.sql for each in records if isinstance(each, Statement) and each.sql.startswith("INSERT")]
    assert [each[-10:] for each in inserts] == ["(0) -- one", "(1) -- one", "(0) -- two", "(1) -- two"]
    assert [type(each) for each in records[-3:]] == [LeftOut, Query, Statement]
    query, refused = records[-2:]
    assert isinstance(query, Query)
    assert query.lines == ("0\tx y", "1\tx y")
    assert isinstance(refused, Statement)
    assert refused.fails


def test_a_file_that_needs_an_extension_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "own.test"
    file.write_text("require spatial\n\nquery I\nSELECT 1\n----\n1\n")
    assert read_slt.read(file, tmp_path, "tabbed").left_out


def test_what_psql_printed_is_cut_at_the_statements(tmp_path: Path) -> None:
    for folder, name, text in (("sql", "own.sql", REGRESS), ("expected", "own.out", PRINTED)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    query, insert, refused = read_regress.read(tmp_path / "sql" / "own.sql", tmp_path).records
    assert isinstance(query, Query)
    assert compare.rows_of(query, 2) == [["1", "10"], ["2", None]]
    assert isinstance(insert, Statement)
    assert not insert.fails
    assert isinstance(refused, Statement)
    assert refused.fails


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ("NULL", None),
        ("(empty)", ""),
        ("1.50", Decimal("1.5")),
        ("3", 3.0),
        ("0.333", 1 / 3),
        ("t", True),
        ("2024-01-02", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        ("2024-01-02 03:04:05.5", dt.datetime(2024, 1, 2, 3, 4, 5, 500_000, tzinfo=dt.UTC)),
        ("[1, NULL, 2]", [1, None, 2]),
        ("{1,NULL,2}", [1, None, 2]),
        ("{'a': 1, 'b': x}", {"a": 1, "b": "x"}),
        ("inf", float("inf")),
    ],
)
def test_a_text_is_read_as_what_stands_in_our_column(stated: str, value: Any) -> None:
    assert not compare.problem(Query("", 1, (stated,), 1, "tabbed"), [[value]], 1)


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ("1", 2),
        ("NULL", 0),
        ("0", None),
        ("1.5", Decimal("1.6")),
        ("true", 0),
        ("a", "b"),
        ("0.334", 1 / 3),
        ("1", "1.0"),
    ],
)
def test_other_values_are_not_equal(stated: str, value: Any) -> None:
    assert compare.problem(Query("", 1, (stated,), 1, "tabbed"), [[value]], 1)


def test_rows_are_compared_as_a_multiset() -> None:
    query = Query("", 1, ("1 a", "1 a", "2 b"))
    assert not compare.problem(query, [[2, "b"], [1, "a"], [1, "a"]], 2)
    assert compare.problem(query, [[2, "b"], [2, "b"], [1, "a"]], 2)


def test_a_transaction_that_is_rolled_back_leaves_rows_and_views_as_they_were() -> None:
    plain = Plain()
    for sql in (
        "CREATE TABLE t (a INT)",
        "INSERT INTO t VALUES (1)",
        "BEGIN",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t",
        "WITH x AS (INSERT INTO t VALUES (2)), y AS (DELETE FROM t WHERE a > 0) SELECT 1",
    ):
        assert plain.run(sql) == ""
    assert plain.rows(plain.tables()["t"]) == [(2,)]
    assert list(plain.views) == ["v"]
    plain.run("ROLLBACK")
    assert plain.rows(plain.tables()["t"]) == [(1,)]
    assert list(plain.views) == []
    plain.close()
