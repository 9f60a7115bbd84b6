"""Column lineage, through joins, subqueries, groups, windows and set operations down to the inputs."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import InputColumn, column_origins
from strandline.jobs.ivm.plan.plan import plan_of_query
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(
        lake,
        """CREATE STREAM r (sensor INT KEY, value INT, area VARCHAR, place STRUCT<x INT, y INT>);
        CREATE TABLE s (sensor INT PRIMARY KEY, owner VARCHAR);
        CREATE STREAM u (sensor INT KEY, value INT, tags ARRAY<VARCHAR>);
        """,
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) AS n, 1 AS one FROM r", {"n": set(), "one": set()}),
        ("SELECT Value + value AS twice, ROWTIME AS t FROM r", {"twice": {"r.value"}, "t": {"r._timestamp"}}),
        ("SELECT SUM(place->x) FILTER (WHERE area = 'x') AS v FROM r WHERE sensor > 1", {"v": {"r.place"}}),
        ("SELECT * FROM s", {"sensor": {"s.sensor"}, "owner": {"s.owner"}}),
        (
            "SELECT owner, value FROM r JOIN s ON r.sensor = s.sensor",
            {"owner": {"s.owner"}, "value": {"r.value"}},
        ),
        ("SELECT x.value AS v FROM r AS x JOIN u AS y ON x.sensor = y.sensor", {"v": {"r.value"}}),
        ("WITH c AS (SELECT MAX(value) AS m FROM r) SELECT m * 2 AS d FROM c", {"d": {"r.value"}}),
        ("SELECT q.m FROM (SELECT value + sensor AS m FROM u) AS q", {"m": {"u.value", "u.sensor"}}),
        ("SELECT value FROM r UNION ALL SELECT sensor FROM s", {"value": {"r.value", "s.sensor"}}),
        ("SELECT value FROM r EXCEPT SELECT sensor FROM s", {"value": {"r.value", "s.sensor"}}),
        (
            "SELECT area, COUNT(*) + MAX(value) AS m FROM r GROUP BY area HAVING COUNT(*) > 1",
            {"area": {"r.area"}, "m": {"r.value"}},
        ),
        (
            "SELECT area, WINDOWSTART AS w, COUNT(*) AS n FROM r WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY area",
            {"area": {"r.area"}, "w": {"r._timestamp"}, "n": set()},
        ),
        (
            "SELECT ROW_NUMBER() OVER (PARTITION BY area ORDER BY value) AS n,"
            " SUM(sensor) OVER (PARTITION BY area) AS s FROM r",
            {"n": {"r.value"}, "s": {"r.sensor"}},
        ),
        ("SELECT EXPLODE(tags) AS tag FROM u", {"tag": {"u.tags"}}),
    ],
)
def test_an_output_column_is_traced_to_the_columns_its_value_is_made_of(
    sql: str, expected: dict[str, set[str]], shared: bool, catalog: Catalog
) -> None:
    made = plan_of_query("v", read_query(parse_query(sql), catalog), state="shared" if shared else "full")
    assert {name: {f"{o.input}.{o.column}" for o in found} for name, found in column_origins(made).items()} == expected


def test_origins_are_sorted_and_there_once(catalog: Catalog) -> None:
    made = plan_of_query("v", read_query(parse_query("SELECT value + sensor + value AS x FROM r"), catalog))
    assert column_origins(made) == {"x": (InputColumn("r", "sensor"), InputColumn("r", "value"))}
