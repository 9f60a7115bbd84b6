"""The planner reads the subqueries through that `jobs.query.recompute_context` says, and gives the others tables.

The recomputation goes by that module alone: were the two of different minds, the same row would fail in one and not in
the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from strandline.jobs.ivm.plan.inputs import rows_of_block
from strandline.jobs.ivm.plan.rows import PlannedRows
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import Block, Query, outputs_of
from strandline.jobs.query.recompute_context import is_read_through
from strandline.jobs.sql.from_text import parse_query
from tests.support.catalog_from_sql import run
from tests.support.memory_catalog import MemoryCatalog

SOURCES = """
CREATE TABLE s (id INT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC = 's');
CREATE TABLE u (id INT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC = 'u');
"""
SUBQUERIES = [
    "(SELECT id, n FROM s)",
    "(SELECT id, 10 / n AS n FROM s)",
    "(SELECT id, n FROM s WHERE n > 1)",
    "(SELECT id, 10 / n AS n FROM s WHERE n > 1)",
    "(SELECT DISTINCT id, n FROM s)",
    "(SELECT id, SUM(n) AS n FROM s GROUP BY id)",
    "(SELECT id, ROW_NUMBER() OVER (ORDER BY n) AS n FROM s)",
    "(SELECT id, EXPLODE(ARRAY[n]) AS n FROM s)",
    "(SELECT id, n FROM s UNION ALL SELECT id, n FROM u)",
    "(SELECT id, n FROM s EXCEPT SELECT id, n FROM u)",
    "(SELECT s.id, u.n FROM s JOIN u ON s.id = u.id)",
    "(SELECT id, n FROM (SELECT id, 10 / n AS n FROM s WHERE n > 1) AS q0)",
    "(SELECT id, n + 1 AS n FROM (SELECT id, n FROM s UNION ALL SELECT id, n FROM u) AS q0)",
    "(SELECT id, n FROM (SELECT DISTINCT id, n FROM s) AS q0 WHERE n > 1)",
]
FORMS = [
    "SELECT q.n FROM {} AS q",
    *(f"SELECT q.n FROM {{}} AS q {join} JOIN u AS t ON q.id = t.id" for join in ("", "LEFT", "RIGHT", "FULL")),
    *(f"SELECT q.n FROM u AS t {join} JOIN {{}} AS q ON q.id = t.id" for join in ("", "LEFT", "RIGHT", "FULL")),
    "SELECT q.n FROM u AS t JOIN {} AS q ON q.id = t.id RIGHT JOIN u AS t2 ON t2.id = t.id",
    "SELECT t.n FROM u AS t WHERE t.n IN (SELECT n FROM {} AS q)",
]


@dataclass
class _Recorder:
    """A builder that notes which queries it is to give a table."""

    stored_queries: list[Query] = field(default_factory=list)

    def stored(self, query: Query) -> Relation:
        self.stored_queries.append(query)
        columns = tuple(outputs_of(query))
        return Relation(f"stored_{len(self.stored_queries)}", columns, "keyed", (columns[0][0],))

    def marked(self, relation: Relation) -> Relation:
        return relation

    def arranged(self, rows: PlannedRows) -> PlannedRows:
        return rows


@pytest.mark.parametrize("form", FORMS)
def test_the_planner_stores_what_is_not_read_through(form: str) -> None:
    catalog = MemoryCatalog()
    run(SOURCES, catalog)
    for subquery in SUBQUERIES:
        block = read_query(parse_query(form.format(subquery)), catalog)
        assert isinstance(block, Block)
        recorder = _Recorder()
        rows_of_block(block, recorder)
        for place, part in enumerate(block.inputs):
            if isinstance(part.source, Relation):
                continue
            stored = any(each is part.source for each in recorder.stored_queries)
            assert stored != is_read_through(block, place, shared=False), subquery
