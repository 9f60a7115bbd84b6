"""DuckDB's way to a rule's relations: within the text, by a view, and down to the files by key."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.ivm.refresh import on_duckdb
from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime
from strandline.jobs.ivm.rules import stored
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import TOMBSTONE
from strandline.state_store.arrangements import Arrangements
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.served_lake import ServedLake

CONSTANT = """
CREATE STREAM v (id BIGINT KEY, town VARCHAR);
CREATE MATERIALIZED VIEW named AS
  SELECT ' "delta_v" AS ' || town || ' "new_v" AS "self_old" AS ' AS said, COUNT(*) AS n FROM v GROUP BY town;
"""
LARGE = """
CREATE STREAM v (id BIGINT KEY, x DOUBLE);
CREATE MATERIALIZED VIEW large AS SELECT id FROM v WHERE x > 5;
"""
GROUPS = """
CREATE STREAM v (id BIGINT KEY, town VARCHAR);
CREATE MATERIALIZED VIEW towns AS SELECT town, COUNT(*) AS n FROM v GROUP BY town;
"""


JOINS = """
CREATE TABLE t (k BIGINT PRIMARY KEY, g VARCHAR, v INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1);
CREATE TABLE u (k BIGINT PRIMARY KEY, g VARCHAR, h VARCHAR) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 1);
CREATE TABLE x (k BIGINT PRIMARY KEY, h VARCHAR, z INT) WITH (KAFKA_TOPIC = 'x', PARTITIONS = 1);
CREATE MATERIALIZED VIEW both_sides AS
  SELECT t.k AS tk, u.k AS uk, t.g AS tg, u.g AS ug, v FROM t FULL JOIN u ON t.g = u.g AND t.v > 1;
CREATE MATERIALIZED VIEW right_side AS SELECT t.k AS tk, u.k AS uk, v FROM t RIGHT JOIN u ON t.g = u.g;
CREATE MATERIALIZED VIEW and_more AS
  SELECT t.k AS tk, u.k AS uk, x.k AS xk, z FROM t FULL JOIN u ON t.g = u.g LEFT JOIN x ON u.h = x.h;
CREATE MATERIALIZED VIEW of_none AS
  SELECT t.k AS tk, u.k AS uk, x.k AS xk FROM t LEFT JOIN u ON t.g = u.g JOIN x ON COALESCE(u.h, 'a') = x.h;
"""


def test_a_constant_that_looks_like_a_relation_stays_as_it_is(settings: Settings, duckdb_engine: DuckDBEngine) -> None:
    made = ServedLake(settings, CONSTANT)
    for count in (1, 2):
        made.append("v", [{"id": count, "town": "Wien"}])
        made.refresh(duckdb_engine)
        assert rows(made, "named") == [(' "delta_v" AS Wien "new_v" AS "self_old" AS ', count)]


def test_nan_is_the_largest_number_whatever_is_stored_beside_it(
    settings: Settings, duckdb_engine: DuckDBEngine
) -> None:
    made = ServedLake(settings, LARGE)
    made.append("v", [{"id": 1, "x": 1.0}, {"id": 2, "x": float("nan")}])
    made.refresh(duckdb_engine)
    assert [number for number, *_ in rows(made, "large")] == [2]


def test_equality_is_for_stored_keys_without_null(
    settings: Settings, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group whose key is NULL is found again by the epochs after the one that made it."""
    by_equality: list[bool] = []
    plain = stored.without_null_keys

    def noted(stage: Any, text: str, engine: Any) -> str:
        found = plain(stage, text, engine)
        by_equality.append(found != text)
        return found

    monkeypatch.setattr(on_duckdb, "without_null_keys", noted)
    made = ServedLake(settings, GROUPS)
    made.append("v", [{"id": 1, "town": "Wien"}])
    made.refresh(duckdb_engine)
    made.append("v", [{"id": 2, "town": None}, {"id": 3, "town": "Wien"}])
    made.refresh(duckdb_engine)
    assert by_equality == [True]
    made.append("v", [{"id": 4, "town": None}, {"id": 5, "town": "Wien"}])
    made.refresh(duckdb_engine)
    assert by_equality == [True], "a stored key is NULL now"
    assert rows(made, "towns") == [("Wien", 3), (None, 2)]


def rows(made: ServedLake, view: str) -> list[tuple[Any, ...]]:
    found = reader.read_rows(made.lake.table(view)).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_touched_rows_are_looked_up_and_the_commit_says_so(settings: Settings, tmp_path: Path) -> None:
    arrangements = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=2, patience=1, largest_share=1.0)
    with DuckDBEngine("256MB", 1, arrangements) as looking, DuckDBEngine("256MB", 1) as scanning:
        found = []
        epochs: list[list[tuple[int, str | None]]] = [
            [(1, "Wien"), (2, "Graz"), (3, None)],
            [(4, "Wien"), (5, None)],
            [(6, "Linz")],
        ]
        for name, duckdb_engine in (("looking", looking), ("scanning", scanning)):
            made = ServedLake(settings.model_copy(update={"lake": tmp_path / name}), GROUPS)
            for events in epochs:
                made.append("v", [{"id": number, "town": town} for number, town in events])
                made.refresh(duckdb_engine)
            head = reader.head(made.lake.table("towns"))
            assert head is not None
            found.append((rows(made, "towns"), head.record.digest))
            second = log.read_record(made.lake.table("towns"), 2)
            assert second is not None
            assert ("2 rows looked up, 0 scanned" in str(second.reason)) == (name == "looking")
    assert found[0] == found[1]
    assert found[0][0] == [("Graz", 1), ("Linz", 1), ("Wien", 2), (None, 2)]


@pytest.mark.parametrize("seed", range(4))
def test_joins_that_keep_rows_which_meet_nothing_give_the_same_by_key(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(DuckDbRuntime, "_hold", lambda *_, **__: None)
    arrangements = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=1, patience=1, largest_share=1000.0)
    views = ("both_sides", "right_side", "and_more", "of_none")
    found, said = [], []
    for name, made in (("looking", arrangements), ("scanning", None)):
        chance = random.Random(seed)
        lake = ServedLake(settings.model_copy(update={"lake": tmp_path / name}), JOINS)
        with DuckDBEngine("256MB", 1, made) as duckdb_engine:
            for epoch in range(6):
                for table in chance.sample(("t", "u", "x"), chance.randint(1, 3) if epoch else 3):
                    lake.append(table, [_drawn(chance, table) for _ in range(chance.randint(1, 3) if epoch else 40)])
                lake.refresh(duckdb_engine)
        heads = [reader.head(lake.lake.table(view)) for view in views]
        found.append([(rows(lake, view), head and head.record.digest) for view, head in zip(views, heads, strict=True)])
        full = log.read_history(lake.lake.table("both_sides"), 1, heads[0].version if heads[0] else 1)
        said.append(" ".join(str(each.record.reason) for each in full if each.record is not None))
    assert found[0] == found[1]
    assert "rows looked up" in said[0]
    assert "rows looked up" not in said[1]


def _drawn(chance: random.Random, table: str) -> dict[str, Any]:
    """A new row, another one in its place, or none any more."""
    words: tuple[str, str] = {"t": ("g", "v"), "u": ("g", "h"), "x": ("h", "z")}[table]
    values = [chance.choice([*"abcdefgh", None]) if each in "gh" else chance.randint(0, 4) for each in words]
    row = {"k": chance.randint(1, 30), **dict(zip(words, values, strict=True))}
    return row if chance.random() < 0.8 else {"k": row["k"], **dict.fromkeys(words), TOMBSTONE: True}


def test_what_is_computed_anew_of_few_rows_is_prepared(
    settings: Settings, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third epoch on: its first is a first refresh, in the second the texts are seen for the first time."""
    kept: list[str] = []
    keep = DuckDbRuntime.keep

    def noted(runtime: DuckDbRuntime, name: str, settled: str) -> None:
        kept.append(name)
        keep(runtime, name, settled)

    monkeypatch.setattr(DuckDbRuntime, "keep", noted)
    made = ServedLake(settings, GROUPS.replace("towns AS", "towns WITH (REFRESH = 'full') AS"))
    expected: Counter[str | None] = Counter()
    for number, town in enumerate(["Wien", "Graz", None, "Wien", None, "Linz"]):
        made.append("v", [{"id": number, "town": town}])
        made.refresh(duckdb_engine)
        expected[town] += 1
        assert rows(made, "towns") == sorted(expected.items(), key=repr)
    assert len(kept) == 1
