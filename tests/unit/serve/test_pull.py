"""Pull queries: any SELECT over what the tables hold, answered without a JVM."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from strandline.jobs.model.errors import InvalidQuery, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import NOON, append, delete, events, update

DEFINITIONS = """
    CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT) WITH (KAFKA_TOPIC = 'readings');
    CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor;
    CREATE TABLE sensors (sensor VARCHAR PRIMARY KEY, price DECIMAL(38, 10), opens TIME, seen TIMESTAMP,
        tags MAP<VARCHAR, INT>, place STRUCT<city VARCHAR, floors ARRAY<INT>>) WITH (KAFKA_TOPIC = 'sensors');
"""


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    interpreter = Interpreter(settings)
    assert list(interpreter.run(DEFINITIONS))
    return interpreter


@pytest.fixture
def filled(session: Interpreter, lake: LakeLayout) -> Interpreter:
    """Three readings in two commits, two averages, one sensor with a value of every kind."""
    rows = [("s1", 45.0, "wheel", 7), ("s3", 67.0, "engine", 8), ("s3", 52.0, "wheel", None)]
    made = [dict(zip(("sensor", "reading", "area", "n"), row, strict=True)) for row in rows]
    events(lake, "readings", made[:2])
    events(lake, "readings", made[2:], first=2, epoch=1)
    append(lake, "avg_readings", [{"sensor": "s1", "avg": 45.0}, {"sensor": "s3", "avg": 59.5}])
    place = {"city": "Rome", "floors": [1, 2]}
    sensor = {"sensor": "s1", "price": Decimal("1234567890123456789012345678.0123456789"), "opens": 34_500_250}
    append(lake, "sensors", [{**sensor, "seen": NOON, "tags": [("a", 1)], "place": place}])
    return session


def answer(session: Interpreter, text: str) -> list[dict[str, object]]:
    (result,) = session.run(text)
    assert isinstance(result, Rows)
    return [dict(zip(result.names, row, strict=True)) for row in result.rows]


def test_star_shows_the_declared_columns_and_not_the_meta_columns(filled: Interpreter) -> None:
    rows = answer(filled, "SELECT * FROM readings WHERE sensor = 's1'")
    assert rows == [{"sensor": "s1", "reading": 45.0, "area": "wheel", "n": 7}]


def test_meta_and_pseudo_columns_of_a_stream_are_there_when_named(filled: Interpreter) -> None:
    rows = answer(
        filled, "SELECT _offset, rowtime, ROWPARTITION, r.rowoffset FROM readings r ORDER BY rowtime DESC LIMIT 1"
    )
    milliseconds = int((NOON + dt.timedelta(seconds=2)).timestamp() * 1000)
    assert rows == [{"_offset": 2, "rowtime": milliseconds, "rowpartition": 0, "rowoffset": 2}]


def test_values_of_every_type_come_back_exactly(filled: Interpreter) -> None:
    (row,) = answer(filled, "SELECT * FROM sensors")
    assert row == {
        "sensor": "s1",
        "price": Decimal("1234567890123456789012345678.0123456789"),
        "opens": dt.time(9, 35, 0, 250_000),
        "seen": NOON,
        "tags": {"a": 1},
        "place": {"city": "Rome", "floors": [1, 2]},
    }


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT COUNT(*) AS c FROM readings", [(3,)]),
        ("SELECT area, COUNT(*), SUM(n) s FROM readings GROUP BY area HAVING COUNT(*) > 1", [("wheel", 2, 7)]),
        ("SELECT DISTINCT sensor FROM readings ORDER BY 1", [("s1",), ("s3",)]),
        ("SELECT reading FROM readings ORDER BY reading DESC LIMIT 2", [(67.0,), (52.0,)]),
        ("SELECT reading FROM readings ORDER BY reading LIMIT 1 OFFSET 1", [(52.0,)]),
        ("SELECT sensor, n / 2 AS half FROM readings WHERE n = 7", [("s1", 3)]),
        ("SELECT a.sensor, price FROM avg_readings a JOIN sensors s ON a.sensor = s.sensor WHERE price < 0", []),
        ("SELECT sensor, avg, tags['a'] FROM avg_readings LEFT JOIN sensors USING (sensor) WHERE avg > 50",
         [("s3", 59.5, None)]),
        ("SELECT sensor FROM avg_readings WHERE avg = (SELECT MAX(avg) FROM avg_readings)", [("s3",)]),
        ("SELECT sensor FROM avg_readings WHERE sensor IN (SELECT sensor FROM sensors)", [("s1",)]),
        ("WITH w AS (SELECT * FROM readings WHERE area = 'wheel') SELECT COUNT(DISTINCT sensor) FROM w", [(2,)]),
        ("SELECT n, ROW_NUMBER() OVER (PARTITION BY sensor ORDER BY reading) r FROM readings ORDER BY r DESC LIMIT 1",
         [(8, 2)]),
        ("SELECT sensor FROM readings UNION SELECT sensor FROM sensors ORDER BY sensor", [("s1",), ("s3",)]),
        ("SELECT COUNT(*) FILTER (WHERE area = 'wheel') FROM readings", [(2,)]),
        ("SELECT COUNT(DISTINCT area, sensor) FROM readings", [(3,)]),
        ("SELECT place->city, UCASE(sensor) FROM sensors WHERE opens > '09:00:00' AND seen < '2024-05-02'",
         [("Rome", "S1")]),
        ("SELECT 1 + 1", [(2,)]),
        ("SELECT REDUCE(place->floors, n, (n, floor) => n + floor) AS s, n FROM sensors s JOIN readings r"
         " ON s.sensor = r.sensor", [(10, 7)]),
        ("SELECT TRANSFORM(tags, (k, v) => UCASE(k), (k, v) => v + CAST(price / 1e27 AS INT)) FROM sensors",
         [({"A": 2},)]),
        ("SELECT EXTRACT(YEAR FROM seen - INTERVAL '1' YEAR), sensor::TEXT FROM sensors", [(2023, "s1")]),
        ("SELECT r.n / 2 FROM readings r JOIN (sensors s JOIN avg_readings a ON a.sensor = s.sensor)"
         " ON r.sensor = s.sensor", [(3,)]),
    ],
)  # fmt: skip
def test_any_select_can_be_asked(filled: Interpreter, query: str, rows: list[tuple[object, ...]]) -> None:
    assert [tuple(row.values()) for row in answer(filled, query)] == rows


def test_columns_without_a_name_are_called_as_in_postgresql_and_equal_names_are_told_apart(filled: Interpreter) -> None:
    (row,) = answer(
        filled, "SELECT 1, a.sensor, COUNT(*), b.sensor FROM readings a JOIN sensors b USING (sensor) GROUP BY 2, 4"
    )
    assert list(row) == ["?column?", "sensor", "count", "sensor_1"]


def test_a_view_that_has_not_run_is_empty(session: Interpreter) -> None:
    assert answer(session, "SELECT * FROM avg_readings") == []
    assert answer(session, "SELECT COUNT(*) AS c FROM readings") == [{"c": 0}]
    assert answer(session, "SELECT * FROM readings LIMIT 5") == []


def test_the_newest_version_is_read_with_changed_and_deleted_rows(filled: Interpreter, lake: LakeLayout) -> None:
    update(lake, "avg_readings", 1, "sensor = 's3'", avg="52.0")
    delete(lake, "avg_readings", 2, "sensor = 's1'")
    assert answer(filled, "SELECT * FROM avg_readings") == [{"sensor": "s3", "avg": 52.0}]


def test_without_order_by_rows_come_by_key_and_events_in_their_order(filled: Interpreter, lake: LakeLayout) -> None:
    append(lake, "avg_readings", [{"sensor": "s2", "avg": 1.0}, {"sensor": "s0", "avg": 2.0}], epoch=1)
    assert [row["sensor"] for row in answer(filled, "SELECT sensor FROM avg_readings")] == ["s0", "s1", "s2", "s3"]
    assert [row["reading"] for row in answer(filled, "SELECT reading FROM readings")] == [45.0, 67.0, 52.0]


def test_a_limit_without_order_ends_the_reading_early(filled: Interpreter) -> None:
    """Over one table, row by row: the same number of rows as when everything was read."""
    for limit in range(5):
        assert len(answer(filled, f"SELECT sensor FROM readings WHERE reading > 1 LIMIT {limit}")) == min(limit, 3)


def test_dead_letters_and_the_log_below_a_table_can_be_read(filled: Interpreter) -> None:
    assert answer(filled, "SELECT reason FROM readings__dead_letters") == []
    assert answer(filled, "SELECT sensor, _tombstone FROM sensors__log") == []


@pytest.mark.parametrize(
    ("query", "error", "hint", "column"),
    [
        ("SELECT * FROM avg_reading", UnknownName, "avg_readings", 15),
        ("SELECT sensr FROM readings", UnknownName, "sensor", 8),
        ("SELECT r.sensr FROM readings r", UnknownName, "sensor", 8),
        ("SELECT x.sensor FROM readings r", UnknownName, "known: r", 8),
        ("SELECT rowtime FROM avg_readings", InvalidQuery, "events have one", 8),
        ("SELECT UPER(sensor) FROM readings", UnknownName, "UPPER", 8),
        ("SELECT sensor FROM readings ORDER BY senso", UnknownName, "sensor", 38),
        ("SELECT sensor FROM readings a JOIN sensors b ON a.sensor = b.sensor", InvalidQuery, "a.sensor", 8),
        ("SELECT reading + area FROM readings", TypeMismatch, None, 8),
        ("SELECT area, n, TOPK(n, 2) FROM readings GROUP BY area", InvalidQuery, "add it to GROUP BY", 14),
        ("SELECT TOPK(n, 2) AS t FROM readings ORDER BY area", InvalidQuery, "add it to GROUP BY", 47),
    ],
)
def test_a_wrong_query_says_where_and_what_to_type(
    filled: Interpreter, query: str, error: type[SqlError], hint: str | None, column: int
) -> None:
    with pytest.raises(error) as caught:
        answer(filled, query)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert hint is None or hint in str(caught.value.hint)


def test_distinct_is_checked_as_in_a_view(filled: Interpreter) -> None:
    query = "SELECT SUM(DISTINCT n), COUNT(DISTINCT area) FILTER (WHERE n > 100) FROM readings"
    assert [list(row.values()) for row in answer(filled, query)] == [[15, 0]]
    with pytest.raises(TypeMismatch, match="SUM"):
        answer(filled, "SELECT SUM(DISTINCT area) FROM readings")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM duckdb_settings()",
        "SELECT getenv('HOME')",
        "SELECT * FROM `/etc/passwd`",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
    ],
)
def test_a_query_reaches_nothing_but_the_catalog(filled: Interpreter, query: str) -> None:
    with pytest.raises(SqlError):
        answer(filled, query)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("u.item = 2", {(7, 2), (8, 2), (None, 2)}),
        ("u.item = r.n", {(7, 7), (8, 8)}),
        ("u.item IN (2, 8)", {(7, 2), (8, 2), (8, 8), (None, 2)}),
        ("u.item = 2 AND r.n = 7", {(7, 2)}),
    ],
)
def test_a_condition_on_an_item_is_none_on_the_rows_it_comes_from(
    filled: Interpreter, where: str, wanted: set[tuple[int | None, int]]
) -> None:
    query = f"SELECT r.n, u.item FROM readings AS r CROSS JOIN UNNEST(ARRAY[r.n, 2]) AS u (item) WHERE {where}"
    assert {(row["n"], row["item"]) for row in answer(filled, query)} == wanted


def test_an_overflow_is_an_error_not_a_wrap(filled: Interpreter) -> None:
    with pytest.raises(InvalidQuery, match=r"fails on a row: readings\.n"):
        answer(filled, "SELECT n * 2147483647 * 2147483647 * 2147483647 FROM readings WHERE n = 7")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST(r.area AS INT) AS a FROM avg_readings AS s CROSS JOIN readings AS r WHERE s.avg < 0",
        "SELECT CAST(r.area AS INT) AS a FROM (SELECT sensor FROM avg_readings WHERE avg < 0) AS s"
        " CROSS JOIN readings AS r",
        "SELECT BIT_XOR(CAST(r.area AS BIGINT)) AS a FROM nowhere CROSS JOIN readings AS r HAVING COUNT(*) > 0",
        "SELECT CAST(q.area AS DATE) AS a FROM (SELECT r.area, s.k, o.n FROM nowhere AS s JOIN nowhere AS o"
        " ON s.k = o.k AND o.n > s.n LEFT JOIN readings AS r ON s.k = r.sensor) AS q",
        "SELECT r.n / (-1 * 0) AS a FROM nowhere AS s JOIN readings AS r WITHIN 5 SECONDS ON s.k = r.sensor"
        " WHERE s.n = 0",
        "SELECT 1 AS a FROM (SELECT r.sensor AS k, r.area FROM nowhere AS s CROSS JOIN readings AS r) AS q"
        " JOIN avg_readings AS a ON CAST(q.area AS INT) = a.avg",
        "SELECT 1 AS a FROM nowhere WHERE EXISTS (SELECT CAST(r.area AS INT) FROM readings AS r JOIN nowhere AS o"
        " ON o.k = r.sensor WHERE CAST(r.area AS INT) > 1)",
    ],
)  # fmt: skip
def test_a_row_that_joins_nothing_fails_no_query(filled: Interpreter, lake: LakeLayout, query: str) -> None:
    list(filled.run("CREATE STREAM nowhere (k VARCHAR, n INT) WITH (KAFKA_TOPIC = 'nowhere');"))
    assert answer(filled, query) == []
    events(lake, "nowhere", [{"k": "s1", "n": 0}, {"k": "s1", "n": 1}])
    with pytest.raises(InvalidQuery, match="fails on a row"):
        answer(filled, query.replace(" WHERE s.avg < 0", "").replace(" WHERE avg < 0", ""))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * EXCEPT (reading, n) FROM readings WHERE n = 7", [{"sensor": "s1", "area": "wheel"}]),
        (
            "SELECT * EXCEPT (area) REPLACE (n + 1 AS n) FROM readings WHERE n = 7",
            [{"sensor": "s1", "reading": 45.0, "n": 8}],
        ),
        ("SELECT b FROM (SELECT sensor, n FROM readings WHERE n = 7) AS z(a, b)", [{"b": 7}]),
        ("WITH z(a, b) AS (SELECT sensor, n FROM readings WHERE n = 7) SELECT b FROM z", [{"b": 7}]),
    ],
)
def test_stars_and_names_of_columns_mean_what_they_mean_in_views(
    filled: Interpreter, query: str, rows: list[dict[str, object]]
) -> None:
    assert answer(filled, query) == rows
