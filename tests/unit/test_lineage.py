"""Column lineage, over one input as the language has now, and over several as it will have."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from orchestration.lineage import Origin, lineage, of_query

COLUMNS = {"r": ["sensor", "value", "area"], "s": ["sensor", "owner"], "u": ["sensor", "value"]}


def origins(sql: str) -> dict[str, set[str]]:
    query = parse_one(sql)
    assert isinstance(query, exp.Query)
    found = lineage(query, COLUMNS)
    return {name: {f"{o.input}.{o.column}" for o in each} for name, each in found.items()}


def test_our_dialect_is_understood() -> None:
    """EMIT CHANGES, `->` and folded names."""
    found = of_query("SELECT Sensor, AVG(READING->value) AS mean FROM readings GROUP BY sensor EMIT CHANGES", {})
    assert found == {"sensor": (Origin("readings", "sensor"),), "mean": (Origin("readings", "reading"),)}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) AS n, 1 AS one FROM r", {"n": set(), "one": set()}),
        ("SELECT value + value AS twice FROM r", {"twice": {"r.value"}}),
        ("SELECT SUM(value) FILTER (WHERE area = 'x') AS v FROM r WHERE sensor > 1", {"v": {"r.value"}}),
        ("SELECT * FROM s", {"sensor": {"s.sensor"}, "owner": {"s.owner"}}),
        ("SELECT a.* FROM s AS a", {"sensor": {"s.sensor"}, "owner": {"s.owner"}}),
        ("SELECT owner, value FROM r JOIN s ON r.sensor = s.sensor", {"owner": {"s.owner"}, "value": {"r.value"}}),
        ("SELECT x.value AS v FROM r AS x JOIN u AS y ON x.sensor = y.sensor", {"v": {"r.value"}}),
        ("WITH c AS (SELECT MAX(value) AS m FROM r) SELECT m * 2 AS d FROM c", {"d": {"r.value"}}),
        ("SELECT q.m FROM (SELECT value + sensor AS m FROM u) AS q", {"m": {"u.value", "u.sensor"}}),
        ("SELECT value FROM r UNION ALL SELECT sensor FROM s", {"value": {"r.value", "s.sensor"}}),
    ],
)
def test_an_output_column_is_traced_to_the_columns_its_value_is_made_of(
    sql: str, expected: dict[str, set[str]]
) -> None:
    assert origins(sql) == expected
