"""Pull queries with clauses and functions of views: answered as a view of them would be."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.catalogued import names_read
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append, events

DEFINITIONS = """
    CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT, tags ARRAY<INT>)
      WITH (KAFKA_TOPIC = 'readings');
    CREATE TABLE owners (area VARCHAR PRIMARY KEY, owner VARCHAR) WITH (KAFKA_TOPIC = 'owners');
    CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor;
"""
ROWS = [("s1", 45.0, "wheel", 7, [1, 2]), ("s3", 67.0, "engine", 8, []), ("s3", 52.0, "wheel", None, [3])]


@pytest.fixture
def filled(settings: Settings, lake: LakeLayout) -> Interpreter:
    """Three readings, a second apart, and two averages."""
    session = Interpreter(settings)
    assert list(session.run(DEFINITIONS))
    events(lake, "readings", [dict(zip(("sensor", "reading", "area", "n", "tags"), row, strict=True)) for row in ROWS])
    append(lake, "avg_readings", [{"sensor": "s1", "avg": 45.0}, {"sensor": "s3", "avg": 59.5}])
    owners = [{"area": "wheel", "owner": name} for name in ("Ada", "Bob", "Cy")]
    events(lake, "owners__log", [{**row, "_tombstone": False} for row in owners])
    return session


def answer(session: Interpreter, text: str) -> list[tuple[Any, ...]]:
    (result,) = session.run(text)
    assert isinstance(result, Rows)
    return [tuple(row) for row in result.rows]


ANSWERS: tuple[tuple[str, list[tuple[Any, ...]]], ...] = (
    ("SELECT LATEST_BY_OFFSET(reading) AS r FROM readings", [(52.0,)]),
    ("SELECT EARLIEST_BY_OFFSET(area, 2) AS a FROM readings", [(["wheel", "engine"],)]),
    (
        "SELECT sensor, TOPK(reading, 2) AS t FROM readings GROUP BY sensor ORDER BY 1",
        [("s1", [45.0]), ("s3", [67.0, 52.0])],
    ),
    ("SELECT HISTOGRAM(area) AS h FROM readings WHERE n = 7", [({"wheel": 1},)]),
    ("SELECT STRING_AGG(area, ',' ORDER BY reading DESC) AS a FROM readings", [("engine,wheel,wheel",)]),
    (
        "SELECT area, COUNT(*) AS c FROM readings GROUP BY area WITH ROLLUP ORDER BY c DESC, area LIMIT 2",
        [(None, 3), ("wheel", 2)],
    ),
    ("SELECT COUNT(*) AS c FROM readings GROUP BY GROUPING SETS ((), ())", [(3,), (3,)]),
    (
        "SELECT area, GROUPING(area) AS g FROM readings GROUP BY ROLLUP (area) ORDER BY g DESC, area OFFSET 2",
        [("wheel", 0)],
    ),
    ("SELECT z.a FROM readings AS z (a) ORDER BY a DESC LIMIT 1", [("s3",)]),
    ("SELECT tag, sensor FROM readings, UNNEST(tags) AS u (tag) ORDER BY tag DESC LIMIT 1", [(3, "s3")]),
    ("SELECT EXPLODE(tags) AS tag FROM readings ORDER BY tag LIMIT 1", [(1,)]),
    ("SELECT x + 1 AS y FROM (VALUES (1), (2)) AS v (x) ORDER BY x + 1 DESC", [(3,), (2,)]),
    ("SELECT COUNT(*) AS c FROM readings WINDOW TUMBLING (SIZE 1 DAY) GROUP BY area ORDER BY c", [(1,), (2,)]),
    (
        "SELECT r.n, a.avg FROM readings r ASOF JOIN avg_readings a ON r.sensor = a.sensor AND r.reading >= a.avg"
        " ORDER BY n",
        [(7, 45.0), (8, 59.5)],
    ),
    ("SELECT DISTINCT ON (area) area, n FROM readings ORDER BY area, n, reading LIMIT 1", [("engine", 8)]),
    (
        "SELECT area FROM readings UNION BY NAME SELECT sensor FROM avg_readings ORDER BY area NULLS LAST LIMIT 1",
        [("engine", None)],
    ),
    (
        "SELECT FIRST_VALUE(n) IGNORE NULLS OVER (ORDER BY reading ROWS UNBOUNDED PRECEDING) AS f FROM readings",
        [(7,)] * 3,
    ),
    ("SELECT NTILE(2) OVER (ORDER BY reading) AS t FROM readings ORDER BY t", [(1,), (1,), (2,)]),
    (
        "SELECT r.sensor, o.owner FROM readings r JOIN owners FOR SYSTEM_TIME AS OF r.ROWTIME o ON r.area = o.area",
        [("s1", "Ada"), ("s3", "Cy")],
    ),
    ("SELECT ATTR(avg) AS a FROM avg_readings WHERE sensor = 's1'", [(45.0,)]),
)


@pytest.mark.parametrize(("query", "rows"), ANSWERS)
def test_what_views_compute_pull_queries_compute_at_once(
    filled: Interpreter, query: str, rows: list[tuple[Any, ...]]
) -> None:
    assert answer(filled, query) == rows


@pytest.mark.parametrize(
    ("query", "error", "column"),
    [
        ("SELECT TOPK(readin, 2) AS t FROM readings", UnknownName, 13),
        ("SELECT TOPK(n, 2) AS t FROM readings__dead_letters", UnknownName, 13),
        ("SELECT TOPK(tags, 2) AS t FROM readings", TypeMismatch, 8),
        ("SELECT TOPK(n, 2) AS t FROM readings ORDER BY n + 1", InvalidQuery, 47),
    ],
)
def test_a_wrong_query_says_where(filled: Interpreter, query: str, error: type[SqlError], column: int) -> None:
    with pytest.raises(error) as caught:
        answer(filled, query)
    assert (type(caught.value), caught.value.column) == (error, column)


@pytest.mark.parametrize(
    "source",
    [
        "TUMBLE(readings, at, INTERVAL '1' DAY)",
        "HOP(readings, at, INTERVAL '1' HOUR, INTERVAL '1' DAY) AS h",
        "SESSION(readings, at, INTERVAL '1' DAY, sensor)",
        "readings, UNNEST(readings.tags) AS u (tag)",
        "(SELECT * FROM TUMBLE(readings, at, INTERVAL '1' DAY)) AS q",
        "(VALUES (1)) AS v (x) CROSS JOIN readings",
    ],
)
def test_whoever_checks_what_may_be_read_sees_the_table_below(filled: Interpreter, source: str) -> None:
    assert names_read(parse_query(f"SELECT * FROM {source}"), Catalog(filled.lake)) == ["readings"]
