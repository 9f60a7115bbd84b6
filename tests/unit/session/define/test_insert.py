"""INSERT INTO … SELECT: queries that feed a stream, their numbers, and what cannot feed one."""

from __future__ import annotations

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation
from strandline.jobs.model.definitions import InsertQuery
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.unit.session.define.defined import view

TARGET = "CREATE STREAM target (sensor VARCHAR KEY, reading DOUBLE);"


def test_queries_into_a_stream_are_numbered(catalog: Catalog) -> None:
    run(TARGET, catalog)
    first = run("INSERT INTO target SELECT sensor, reading FROM readings", catalog)
    second = run("INSERT INTO target SELECT sensor, n AS reading FROM readings EMIT CHANGES", catalog)
    assert isinstance(first, InsertQuery)
    assert isinstance(second, InsertQuery)
    assert [(q.name, q.number, q.inputs) for q in (first, second)] == [
        ("target__insert_1", 1, ("readings",)),
        ("target__insert_2", 2, ("readings",)),
    ]
    assert run("insert into TARGET select r.sensor, r.reading from readings r", catalog) == first


def test_queries_can_feed_a_stream_that_a_query_made(catalog: Catalog) -> None:
    made = view("CREATE STREAM copy AS SELECT sensor, n FROM readings", catalog)
    found = run("INSERT INTO copy SELECT sensor, n * 2 AS n FROM readings", catalog)
    assert isinstance(found, InsertQuery)
    assert (found.target, found.number, found.pipeline) == ("copy", 1, made.pipeline)
    assert catalog.get("copy") == made


def test_a_stream_whose_rows_share_events_does_not_tell_them_apart_by_events(catalog: Catalog) -> None:
    run("CREATE STREAM copy AS SELECT sensor, n FROM readings", catalog)
    assert relation("copy", catalog).identity == ("_partition", "_offset")
    run("INSERT INTO copy SELECT sensor, EXPLODE(ARRAY[n, n + 1]) AS n FROM readings", catalog)
    assert relation("copy", catalog).identity == ()


def test_rows_of_all_queries_come_into_a_stream_that_one_made(catalog: Catalog, duck: DuckDBPyConnection) -> None:
    run(
        """CREATE STREAM copy AS SELECT sensor, n FROM readings WHERE n < 10;
        INSERT INTO copy SELECT sensor, -n AS n FROM readings;
        CREATE MATERIALIZED VIEW sums AS SELECT sensor, SUM(n) AS n FROM copy GROUP BY sensor;""",
        catalog,
    )
    bench = DuckLake(catalog, catalog.definitions(), duck)
    for offset, n in enumerate((3, 20)):
        bench.feed("readings", [{"sensor": "a", "n": n, "_partition": 0, "_offset": offset}])
        bench.refresh()
        assert [bench.wrong(name) for name in ("copy", "sums")] == ["", ""]
    rows = sorted((row["n"], row["_partition"], row["_offset"]) for row in bench.rows("copy"))
    assert rows == [(-20, 65536, 1), (-3, 65536, 0), (3, 0, 0)]
    assert [row["n"] for row in bench.rows("sums")] == [-20]


def test_the_number_of_a_query_leaves_out_the_places_that_branches_take(catalog: Catalog) -> None:
    """Branch 2 of a UNION ALL has the partitions that query 2 would have."""
    run(
        "CREATE STREAM both AS SELECT sensor, n FROM readings UNION ALL SELECT sensor, n + 1 AS n FROM readings",
        catalog,
    )
    numbers = []
    for text in ("n", "n * 2 AS n FROM readings UNION ALL SELECT sensor, n * 3 AS n", "n * 4 AS n"):
        found = run(f"INSERT INTO both SELECT sensor, {text} FROM readings", catalog)
        assert isinstance(found, InsertQuery)
        numbers.append(found.number)
    assert numbers == [3, 4, 7]


def test_a_query_into_a_stream_belongs_to_the_streams_pipeline(catalog: Catalog) -> None:
    """A table has one writer: two pipelines that both run would commit to the stream's event log at once."""
    run(TARGET, catalog, "shop")
    assert run("INSERT INTO target SELECT sensor, reading FROM readings", catalog, "default").pipeline == "shop"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO nowhere SELECT n FROM readings", UnknownName, "unknown stream 'nowhere'"),
        ("INSERT INTO users SELECT n FROM readings", InvalidQuery, "'users' is a table"),
        ("INSERT INTO copy SELECT sensor, area AS n FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO copy SELECT sensor, n FROM copy", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO copy SELECT sensor, EXPLODE(ARRAY[n, n + 1]) AS n FROM readings", NotSupported, "'near' tells"),
        ("INSERT INTO lasting SELECT sensor, n FROM readings", InvalidQuery, "materialized view"),
        ("INSERT INTO near SELECT sensor, n AS a, n AS b FROM readings", NotSupported, "change and go"),
        ("INSERT INTO target SELECT sensor FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT reading, sensor FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT sensor, area AS reading FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT name AS sensor, 1.0 AS reading FROM users", InvalidQuery, "only events"),
        (
            "INSERT INTO target SELECT sensor, AVG(reading) AS reading FROM readings GROUP BY sensor",
            InvalidQuery,
            "only",
        ),
        ("INSERT INTO target SELECT * FROM target", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO target SELECT * FROM derived", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO readings2 SELECT * FROM target", NotSupported, "chains"),
        ("INSERT INTO readings SELECT * FROM readings0", NotSupported, "chains"),
    ],
)
def test_inserts_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    run(
        f"""{TARGET} CREATE STREAM copy AS SELECT sensor, n FROM readings;
        CREATE MATERIALIZED VIEW lasting AS SELECT sensor, n FROM readings;
        CREATE STREAM near AS SELECT r.sensor AS sensor, r.n AS a, c.n AS b
            FROM readings r LEFT JOIN copy c WITHIN 1 MINUTE ON r.sensor = c.sensor;
        CREATE STREAM derived AS SELECT * FROM target;
        CREATE STREAM readings2 (sensor VARCHAR KEY, reading DOUBLE);
        CREATE STREAM readings0 (
            sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT, at TIMESTAMP, tags ARRAY<VARCHAR>);
        INSERT INTO target SELECT sensor, reading FROM readings;""",
        catalog,
    )
    with pytest.raises(error, match=message) as caught:
        run(text, catalog)
    assert type(caught.value) is error
