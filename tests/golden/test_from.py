"""What stands in FROM and is no table, in one pipeline on Spark and by DuckDB: rates, orders, quotes.

order 1 pears, plums in EUR at 10:00:15      order 2 plums in CHF at 10:00:20      order 3 nothing in EUR at 10:09:00
quotes of EUR: 1.1 at 10:00:00, then 1.2 at 10:00:10; of CHF: 0.9 at 10:00:30
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from tests.support.invariants import assert_correct

DEFINITIONS = """
CREATE STREAM orders (id INT KEY, items ARRAY<VARCHAR>, currency VARCHAR, at TIMESTAMP) WITH (KAFKA_TOPIC = 'orders');
CREATE TABLE quotes (id INT PRIMARY KEY, currency VARCHAR, rate DOUBLE, at TIMESTAMP)
  WITH (KAFKA_TOPIC = 'quotes', VALUE_FORMAT = 'PROTOBUF', PARTITIONS = 1);
CREATE MATERIALIZED VIEW sold AS SELECT item, COUNT(*) AS n FROM orders CROSS JOIN UNNEST(items) AS i (item)
  GROUP BY item;
CREATE MATERIALIZED VIEW named AS SELECT o.id, item, place, c.name FROM orders o
  LEFT JOIN UNNEST(o.items) WITH ORDINALITY AS i (item, place) ON TRUE
  LEFT JOIN (VALUES ('EUR', 'Euro'), ('USD', 'Dollar')) AS c (code, name) ON c.code = o.currency;
CREATE MATERIALIZED VIEW priced AS SELECT o.id, q.rate FROM orders o ASOF LEFT JOIN quotes q
  ON o.currency = q.currency AND o.at >= q.at;
CREATE MATERIALIZED VIEW known AS SELECT o.id, q.currency FROM orders o
  JOIN quotes FOR SYSTEM_TIME AS OF o.ROWTIME q ON o.id = q.id;
CREATE MATERIALIZED VIEW visits AS SELECT id, window_start = at AS first FROM SESSION(orders, at, INTERVAL '1' MINUTE);
CREATE MATERIALIZED VIEW ranked AS SELECT id, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY at) AS in_currency,
  COUNT(*) OVER (PARTITION BY ARRAY_LENGTH(items)) AS as_long FROM orders;
CREATE MATERIALIZED VIEW codes AS SELECT x FROM (VALUES (1), (2)) AS v (x) UNION ALL SELECT 3 AS x;
"""
EVENTS = (
    """INSERT INTO quotes VALUES (1, 'EUR', 1.1, '2024-05-01T10:00:00');
    INSERT INTO quotes VALUES (2, 'CHF', 0.9, '2024-05-01T10:00:30');
    INSERT INTO orders VALUES (1, ARRAY['pears', 'plums'], 'EUR', '2024-05-01T10:00:15');
    INSERT INTO orders VALUES (2, ARRAY['plums'], 'CHF', '2024-05-01T10:00:20');""",
    """INSERT INTO quotes VALUES (3, 'EUR', 1.2, '2024-05-01T10:00:10');
    INSERT INTO orders (id, currency, at) VALUES (3, 'EUR', '2024-05-01T10:09:00');""",
)
EXPECTED: dict[str, tuple[set[tuple[Any, ...]], ...]] = {
    "sold": ({("pears", 1), ("plums", 2)},) * 2,
    "named": (
        {(1, "pears", 1, "Euro"), (1, "plums", 2, "Euro"), (2, "plums", 1, None)},
        {(1, "pears", 1, "Euro"), (1, "plums", 2, "Euro"), (2, "plums", 1, None), (3, None, None, "Euro")},
    ),
    # The quote of 10:00:10 comes late, and order 1 gets it.
    "priced": ({(1, 1.1), (2, None)}, {(1, 1.2), (2, None), (3, 1.2)}),
    "known": ({(1, "EUR"), (2, "CHF")}, {(1, "EUR"), (2, "CHF"), (3, "EUR")}),
    "visits": ({(1, True), (2, False)}, {(1, True), (2, False), (3, True)}),
    "ranked": ({(1, 1, 1), (2, 1, 1)}, {(1, 1, 1), (2, 1, 1), (3, 2, 1)}),
    "codes": ({(1,), (2,), (3,)},) * 2,
}


def _rows(session: Interpreter, view: str) -> set[tuple[Any, ...]]:
    (result,) = session.run(f"SELECT * FROM {view};")
    assert isinstance(result, Rows)
    return {tuple(row) for row in result.rows}


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_views_of_arrays_constants_and_the_nearest_rows(settings: Settings, spark: SparkSession, engine: str) -> None:
    chosen = load_settings(**{**settings.model_dump(), "engine": engine})
    session = Interpreter(chosen)
    assert list(session.run(DEFINITIONS))
    for step, events in enumerate(EVENTS):
        assert list(session.run(events))
        drain(chosen, "default", spark)
        for view, shown in EXPECTED.items():
            assert _rows(session, view) == shown[step], view
    assert_correct(session.lake, "default")
