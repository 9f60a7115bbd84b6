"""Rows that fail in a part of a view which is computed apart are among the view's dead letters, wherever they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

import strandline
from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.serve.results import LiveRows, Weighted
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.layout import LakeLayout

SOURCES = (
    "CREATE TABLE a (id BIGINT PRIMARY KEY, x BIGINT, d VARCHAR); CREATE TABLE b (id BIGINT PRIMARY KEY, w BIGINT);"
)
SELECT = """
SELECT DISTINCT a.x, RANK() OVER (PARTITION BY a.x ORDER BY a.id) AS r
FROM a WHERE CAST(a.d AS INT) NOT IN (SELECT b.w FROM b WHERE b.id > 0)
"""


@pytest.mark.parametrize("options", ["", "WITH (STATE = 'shared')"])
def test_they_are_asked_for_by_the_views_name_and_counted(options: str, tmp_path: Path) -> None:
    lake = strandline.open_lake(str(tmp_path / "lake"), engine="duckdb")
    layout = LakeLayout(lake.settings.lake)
    lake.execute(f"{SOURCES} CREATE MATERIALIZED VIEW v {options} AS {SELECT}")
    lake.insert("a", [{"id": 1, "x": 1, "d": "5"}, {"id": 2, "x": 2, "d": "x"}, {"id": 3, "x": 3, "d": "6"}])
    lake.insert("b", [{"id": 1, "w": 1}, {"id": 2, "w": 6}])
    lake.drain("default")
    assert lake.query("SELECT x FROM v") == [{"x": 1}]
    found = lake.query("SELECT row FROM v__dead_letters")
    assert len(found) == 2
    assert all('"a_d":"x"' in row["row"] for row in found)
    assert lake.query('SELECT COUNT(*) AS n FROM v__dead_letters WHERE row LIKE \'%"a_d":"x"%\'') == [{"n": 2}]
    [letters] = letters_of(layout, stage_tables(layout, "v"))
    assert letters != "v__dead_letters"
    assert [(row[1], row[5]) for row in status(lake.settings).rows if row[2] == "dead letters"] == [(letters, 2)]
    assert [str(each) for each in verify(lake.settings, deep=True) if each.ok is False] == []

    lake.insert("a", [{"id": 2, "x": 2, "d": "7"}])
    lake.drain("default")
    assert lake.query("SELECT row FROM v__dead_letters") == []
    assert [str(each) for each in verify(lake.settings, deep=True) if each.ok is False] == []
    lake.execute("DROP VIEW v")
    assert {path.name for path in (Path(str(layout.tables))).iterdir()} == {"a", "a__log", "b", "b__log"}


def subscribed(session: Interpreter) -> str:
    """The first failing row that a subscriber hears of."""
    *_, found = session.run("SELECT row FROM v__dead_letters EMIT CHANGES")
    assert isinstance(found, LiveRows)
    first = next(iter(found.rows))
    assert isinstance(first, Weighted)
    assert first.weight == 1
    return str(first.row[0])


def test_a_subscription_is_of_the_part_that_has_them(tmp_path: Path) -> None:
    lake = strandline.open_lake(str(tmp_path / "lake"), engine="duckdb")
    lake.execute(f"{SOURCES} CREATE MATERIALIZED VIEW v AS SELECT 10 / x AS y FROM (SELECT DISTINCT x FROM a) d")
    lake.insert("a", [{"id": 1, "x": 0, "d": "5"}, {"id": 2, "x": 5, "d": "5"}])
    lake.drain("default")
    session = Interpreter(lake.settings)
    assert '_x":0' in subscribed(session)
    counted = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT 10 / x AS y FROM a) d"
    lake.execute(f"DROP VIEW v; CREATE MATERIALIZED VIEW v AS {counted}")
    lake.drain("default")
    assert '_x":0' in subscribed(session)


def test_a_subscription_to_those_of_several_parts_is_refused(tmp_path: Path) -> None:
    lake = strandline.open_lake(str(tmp_path / "lake"), engine="duckdb")
    failing = "SELECT 10 / (y - 2) AS z FROM (SELECT DISTINCT 10 / x AS y FROM a) d"
    lake.execute(f"{SOURCES} CREATE MATERIALIZED VIEW v AS {failing}")
    lake.insert("a", [{"id": 1, "x": 0, "d": "5"}, {"id": 2, "x": 5, "d": "5"}])
    lake.drain("default")
    assert lake.query("SELECT COUNT(*) AS n FROM v__dead_letters") == [{"n": 2}]
    with pytest.raises(NotSupported, match="the rows on which 'v' fails stand in 2 tables"):
        subscribed(Interpreter(lake.settings))
