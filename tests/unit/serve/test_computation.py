"""The text and the tables of a pull query: which columns are read, and what a table keeps beside its visible rows."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import Settings
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.serve.pull import computation
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.tablespec import STATE
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE TABLE p (id INT PRIMARY KEY, k VARCHAR, w INT) WITH (KAFKA_TOPIC = 'p');
    CREATE TABLE kept AS SELECT id, w FROM p;
"""


@pytest.fixture
def served(settings: Settings) -> ServedLake:
    """A table of which two keys have come, one of them twice."""
    made = ServedLake(settings, DEFINITIONS)
    made.append("p", [{"id": 1, "k": "a", "w": 5}, {"id": 2, "k": "b", "w": 6}, {"id": 1, "k": "a", "w": 7}])
    with made.duckdb_engine() as duckdb_engine:
        made.refresh(duckdb_engine)
    return made


def read(served: ServedLake, text: str) -> dict[str, list[str]]:
    """The columns that a query reads, by the names of its tables."""
    made = computation(read_pull(parse_query(text), Catalog(served.lake)), None)
    return {name: [column for column, _ in relation.columns] for name, relation in made.tables.items()}


def answer(served: ServedLake, text: str) -> list[tuple[Any, ...]]:
    (result,) = Interpreter(served.settings).run(text)
    assert isinstance(result, Rows)
    return [tuple(row) for row in result.rows]


def test_a_query_reads_the_columns_that_it_names(served: ServedLake) -> None:
    assert read(served, "SELECT w FROM p WHERE id = 1") == {"p": ["id", "w"]}
    assert read(served, "SELECT COUNT(*) FROM p") == {"p": ["id"]}
    nested = "SELECT id FROM p WHERE w > (SELECT MIN(w) FROM kept WHERE kept.id = p.id)"
    assert read(served, nested) == {"p": ["id", "w"], "kept": ["id", "w"]}


def test_what_a_table_keeps_of_its_newest_event_can_be_read(served: ServedLake) -> None:
    assert read(served, "SELECT id, rowoffset FROM p") == {"__stored_0": ["id", STATE]}
    assert answer(served, "SELECT id, rowoffset FROM p ORDER BY rowtime DESC") == [(1, 2), (2, 1)]
    assert answer(served, "SELECT LATEST_BY_OFFSET(w) AS w FROM p") == [(7,)]


def test_changes_do_not_show_what_is_kept_beside_the_rows(served: ServedLake) -> None:
    with pytest.raises(NotSupported, match="do not show '_offset'"):
        answer(served, "SELECT id, rowoffset FROM p EMIT CHANGES LIMIT 1")
