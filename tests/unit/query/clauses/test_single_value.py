"""A subquery that stands for a value and finds several rows: the row that asks fails, until there is one again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.errors import RowNotAnswered
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.checked_views import defined

SOURCES = """
CREATE TABLE asks (id INT PRIMARY KEY, k INT) WITH (KAFKA_TOPIC = 'asks', PARTITIONS = 1);
CREATE TABLE found (id INT PRIMARY KEY, k INT, name VARCHAR) WITH (KAFKA_TOPIC = 'found', PARTITIONS = 1);
CREATE MATERIALIZED VIEW matched AS SELECT id, (SELECT name FROM found WHERE found.k = asks.k) AS name FROM asks;
CREATE MATERIALIZED VIEW same AS SELECT id, (SELECT DISTINCT name FROM found WHERE k > 1) AS name FROM asks;
CREATE MATERIALIZED VIEW kept AS SELECT id FROM asks WHERE (SELECT name FROM found WHERE found.k = asks.k) = 'a';
"""
VIEWS = ("matched", "same", "kept")
Key = int
Name = str | None


class Both:
    """The lake, the events that came, and the two tables as a person would keep them."""

    def __init__(self, settings: Settings, lake: LakeLayout) -> None:
        self.settings, self.lake = settings, lake
        self.asks: dict[Key, int | None] = {}
        self.found: dict[Key, tuple[int | None, Name]] = {}
        self._epochs = {"asks": 0, "found": 0}
        self._offsets = {"asks": 0, "found": 0}
        list(Interpreter(settings, "shop").run(SOURCES))

    def came(self, table: str, key: Key, **values: Any) -> None:
        """An event: a row with these values, or none: it is deleted."""
        row = {"id": key, **values, "_tombstone": not values}
        lake_tables.events(self.lake, f"{table}__log", [row], self._offsets[table], self._epochs[table])
        self._offsets[table] += 1
        self._epochs[table] += 1

    def asked(self, key: Key, k: int | None) -> None:
        self.came("asks", key, k=k)
        self.asks[key] = k

    def was_found(self, key: Key, k: int | None, name: Name) -> None:
        self.came("found", key, k=k, name=name)
        self.found[key] = (k, name)

    def names(self, k: int | None) -> list[Name]:
        return [name for other, name in self.found.values() if other == k and k is not None]

    def check(self) -> None:
        """Every view is what the tables give, and so are its dead letters."""
        drain(self.settings, "shop")
        assert [each for each in verify(self.settings, [*VIEWS], deep=True) if each.ok is False] == []
        several = {key for key, k in self.asks.items() if len(self.names(k)) > 1}
        single = {key: (self.names(k) or [None])[0] for key, k in self.asks.items() if key not in several}
        assert self.rows("matched") == single
        assert self.failing("matched") == several
        assert {*self.rows("kept", "id")} == {key for key, name in single.items() if name == "a"}
        assert self.failing("kept") == several
        distinct = {name for k, name in self.found.values() if k is not None and k > 1}
        assert self.rows("same") == ({} if len(distinct) > 1 else dict.fromkeys(self.asks, next(iter(distinct), None)))
        assert self.failing("same") == (set(self.asks) if len(distinct) > 1 else set())

    def rows(self, view: str, value: str = "name") -> dict[Key, Any]:
        return {row["id"]: row[value] for row in reader.read_rows(self.lake.table(view)).to_pylist()}

    def failing(self, view: str) -> set[Key]:
        letters = self.lake.table(f"{view}__dead_letters")
        rows = [] if reader.head(letters) is None else reader.read_rows(letters).to_pylist()
        assert [row["reason"] for row in rows if "a subquery with several rows" not in row["reason"]] == []
        return {json.loads(row["row"])["asks_id"] for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_the_row_that_asks_fails_while_there_are_several(settings: Settings, lake: LakeLayout, seed: int) -> None:
    both, draw = Both(settings, lake), random.Random(seed)
    for epoch in range(4):
        for _ in range(draw.randint(1, 4)):
            both.asked(draw.randrange(5), draw.choice((None, 1, 2, 3)))
            both.was_found(draw.randrange(4), draw.choice((None, 1, 2, 3)), draw.choice(("a", "b", None)))
        if epoch == 2 and both.found:
            gone = draw.choice([*both.found])
            both.came("found", gone)
            del both.found[gone]
        both.check()


def test_a_pull_has_an_error(settings: Settings, lake: LakeLayout) -> None:
    both = Both(settings, lake)
    both.asked(1, 1)
    both.was_found(1, 1, "a")
    both.was_found(2, 1, "b")
    drain(settings, "shop")
    with pytest.raises(RowNotAnswered, match="has several rows"):
        list(Interpreter(settings, "shop").run("SELECT id, (SELECT name FROM found WHERE found.k = asks.k) FROM asks;"))


def test_a_group_that_reads_the_query_around_it_is_refused() -> None:
    with pytest.raises(NotSupported, match="one aggregate"):
        defined("SELECT id, (SELECT MAX(n) FROM u WHERE u.k = t.k GROUP BY u.id) AS m FROM t")
