"""Constants where values of rows are expected: as terms of a join's condition, and as groups."""

from __future__ import annotations

from pathlib import Path

import pytest

import strandline
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.operate.verify.verify import verify

SOURCES = "CREATE TABLE l (id INT PRIMARY KEY, x INT); CREATE TABLE r (id INT PRIMARY KEY, x INT);"
DATES = "DATE '2026-01-03' >= DATE '2026-01-01'"
FAILS = "CASE WHEN TRUE THEN 1/0 END = 1"
JOINS = {
    "left": "SELECT l.id, r.id AS o FROM l LEFT JOIN r ON l.x = r.x AND {}",
    "full": "SELECT l.id, r.id AS o FROM l FULL JOIN r ON l.x = r.x AND {}",
    "exists": "SELECT l.id, 0 AS o FROM l WHERE EXISTS (SELECT 1 FROM r WHERE l.x = r.x AND {})",
    "not exists": "SELECT l.id, 0 AS o FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE l.x = r.x AND {})",
    "semi": "SELECT l.id, 0 AS o FROM l SEMI JOIN r ON l.x = r.x AND {}",
}
HOLDS = {
    "left": [(1, None), (2, 2)],
    "full": [(1, None), (2, 2), (None, 3)],
    "exists": [(2, 0)],
    "not exists": [(1, 0)],
    "semi": [(2, 0)],
}
WITHOUT = {
    "left": [(1, None)],
    "full": [(1, None), (None, 3)],
    "exists": [],
    "not exists": [(1, 0), (2, 0)],
    "semi": [],
}
"""Rows that a failing term leaves: a pair that fails is none, and a row of the other side that fails is not there."""
LETTERS = {"left": 1, "full": 1, "exists": 2, "not exists": 2, "semi": 2}


def maintained(folder: Path, select: str) -> strandline.Lake:
    """A lake with the view `v`, after an epoch of inserts and one of an insert and a delete."""
    lake = strandline.open_lake(str(folder / "lake"), engine="duckdb")
    lake.execute(f"{SOURCES} CREATE MATERIALIZED VIEW v AS {select}")
    lake.insert("l", [{"id": 1, "x": 1}, {"id": 2, "x": 2}])
    lake.insert("r", [{"id": 1, "x": 1}, {"id": 3, "x": 3}])
    lake.drain("default")
    lake.insert("r", [{"id": 2, "x": 2}])
    lake.execute("DELETE FROM r WHERE id = 1")
    lake.drain("default")
    return lake


def rows(lake: strandline.Lake) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in lake.arrow("v").to_pylist()), key=str)


def wrong(lake: strandline.Lake) -> list[str]:
    return [str(check) for check in verify(lake.settings, deep=True) if check.ok is False]


@pytest.mark.parametrize("kind", JOINS)
def test_a_constant_that_could_fail_is_a_term_as_any(kind: str, tmp_path: Path) -> None:
    lake = maintained(tmp_path, JOINS[kind].format(DATES))
    assert rows(lake) == HOLDS[kind]
    assert lake.query("SELECT COUNT(*) AS n FROM v__dead_letters") == [{"n": 0}]
    assert wrong(lake) == []


@pytest.mark.parametrize("kind", JOINS)
def test_a_constant_that_fails_is_a_dead_letter_of_each_row_that_meets_it(kind: str, tmp_path: Path) -> None:
    lake = maintained(tmp_path, JOINS[kind].format(FAILS))
    assert rows(lake) == WITHOUT[kind]
    assert lake.query("SELECT COUNT(*) AS n FROM v__dead_letters") == [{"n": LETTERS[kind]}]
    assert wrong(lake) == []


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT 'web' AS channel, x, COUNT(*) AS n FROM r GROUP BY 1, 2", [("web", 2, 1), ("web", 3, 1)]),
        ("SELECT 7 AS channel, COUNT(*) AS n FROM r GROUP BY 1", [(7, 2)]),
        ("SELECT DATE '2026-01-01' AS day, COUNT(*) AS n FROM r WHERE x > 7 GROUP BY day", []),
        ("SELECT COUNT(*) AS n FROM r WHERE x > 7", [(0,)]),
        ("SELECT COUNT(*) AS n FROM r GROUP BY 'x'", [(2,)]),
        (
            "SELECT 'a' AS a, x, COUNT(*) AS n FROM r GROUP BY ROLLUP (1, 2) HAVING COUNT(*) > 1",
            [("a", None, 2), (None, None, 2)],
        ),
    ],
)
def test_a_constant_is_a_group_of_all_rows_and_none_of_no_row(
    select: str, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    lake = maintained(tmp_path, select)
    assert rows(lake) == expected
    assert sorted((tuple(row.values()) for row in lake.query(select)), key=str) == expected
    assert wrong(lake) == []


def test_a_number_that_is_no_position_is_refused(tmp_path: Path) -> None:
    lake = strandline.open_lake(str(tmp_path / "lake"))
    lake.execute(SOURCES)
    for number in ("7", "1.5"):
        with pytest.raises(InvalidQuery, match=f"GROUP BY {number}"):
            lake.execute(f"CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n FROM l GROUP BY {number}")
