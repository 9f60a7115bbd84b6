"""WINDOW: its parts, its bounds, its time, and windows that cannot be."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, SqlError, SqlSyntaxError, UnknownName
from strandline.jobs.query.logical import TimeWindow
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from tests.support.query_text import block, joins, shown, sql

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("clause", "wanted"),
    [
        ("TUMBLING (SIZE 1 HOUR)", TimeWindow("tumbling", HOUR, HOUR, None)),
        ("TUMBLING (SIZE 90 SECONDS, GRACE PERIOD 0 SECONDS)", TimeWindow("tumbling", 90_000, 90_000, 0)),
        ("HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES)", TimeWindow("hopping", HOUR, 10 * MINUTE, None)),
        (
            "HOPPING (GRACE PERIOD 1 DAY, RETENTION 1 YEAR, ADVANCE BY 1 MILLISECOND, SIZE 2 DAYS)",
            TimeWindow("hopping", 2 * DAY, 1, DAY, 365 * DAY),
        ),
        ("SESSION (5 MINUTES, GRACE PERIOD 1 HOUR)", TimeWindow("session", 5 * MINUTE, 5 * MINUTE, HOUR)),
    ],
)
def test_the_parts_of_a_window(catalog: Catalog, clause: str, wanted: TimeWindow) -> None:
    found = block(f"SELECT k, COUNT(*) AS c FROM s WINDOW {clause} WHERE v > 0 GROUP BY k", catalog)
    assert found.window == wanted
    assert sql(found.time) == "s._timestamp"
    assert sql(found.where) == "s.v > 0"


@pytest.mark.parametrize(
    ("statement", "end", "grace", "final"),
    [
        ("CREATE MATERIALIZED VIEW v", "", None, False),
        ("CREATE TABLE v", "EMIT CHANGES", DAY, False),
        ("CREATE TABLE v", "EMIT FINAL", 0, True),
    ],
)
def test_how_long_a_window_waits_when_it_is_not_said(
    catalog: Catalog, statement: str, end: str, grace: int | None, final: bool
) -> None:
    found = block(f"{statement} AS SELECT k, COUNT(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k {end}", catalog)
    assert found.window == TimeWindow("tumbling", HOUR, HOUR, grace, final=final)


def test_the_bounds_of_a_window_can_be_selected(catalog: Catalog) -> None:
    found = block(
        "SELECT k, WINDOWSTART, WINDOWEND - WINDOWSTART AS size FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k",
        catalog,
    )
    assert shown(found.outputs) == ["k", "windowstart", "size = windowend - windowstart"]
    assert found.key == ("k",)


def test_a_window_over_a_join_goes_by_the_greatest_time(catalog: Catalog) -> None:
    found = block(
        "SELECT s.k, COUNT(*) AS c FROM s JOIN r ON s.id = r.id WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY s.k", catalog
    )
    assert sql(found.time) == "GREATEST(s._timestamp, r._timestamp)"
    assert joins(found) == ["inner s", "inner r ON s.id = r.id"]


def test_what_is_stored_of_a_query_reads_back_as_the_same(catalog: Catalog) -> None:
    text = (
        "SELECT s.k, COUNT(*) AS c FROM s JOIN r WITHIN (1 SECOND, 1 HOUR) GRACE PERIOD 1 DAY ON s.id = r.id WINDOW"
        " HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE, RETENTION 2 DAYS, GRACE PERIOD 1 HOUR) WHERE s.v > 0 GROUP BY s.k"
        " HAVING COUNT(*) > 1 EMIT FINAL"
    )
    stored = sql_of(parse_query(text))
    assert sql_of(parse_query(stored)) == stored
    assert block(stored, catalog) == block(text, catalog)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 1 HOUR)", InvalidQuery, "needs GROUP BY"),
        ("SELECT k, COUNT(*) AS c FROM s GROUP BY k EMIT FINAL", InvalidQuery, "EMIT FINAL"),
        ("SELECT k FROM s WINDOW HOPPING (SIZE 1 SECOND, ADVANCE BY 1 HOUR) GROUP BY k", InvalidQuery, "ADVANCE BY"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 DAY, RETENTION 1 HOUR) GROUP BY k", InvalidQuery, "RETENTION"),
        ("SELECT k, v AS windowend FROM s", InvalidQuery, "reserved"),
        ("SELECT k, WINDOWSTART AS w FROM s", UnknownName, "windowstart"),
        (
            "SELECT k, COUNT(*) AS c FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k, WINDOWSTART",
            InvalidQuery,
            "grouped by their window already",
        ),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 FORTNIGHT) GROUP BY k", SqlSyntaxError, "unit of time"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 0 HOURS) GROUP BY k", SqlSyntaxError, "more than 0"),
        ("SELECT k FROM s WINDOW TUMBLING (ADVANCE BY 1 HOUR) GROUP BY k", SqlSyntaxError, "expected SIZE"),
        ("SELECT k FROM s WINDOW HOPPING (SIZE 1 HOUR) GROUP BY k", SqlSyntaxError, "needs ADVANCE BY"),
        ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 HOUR, SIZE 1 HOUR) GROUP BY k", SqlSyntaxError, "given twice"),
        ("SELECT k FROM s WITHIN 1 HOUR", InvalidQuery, "belongs to a JOIN"),
    ],
)
def test_windows_that_cannot_be(catalog: Catalog, query: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        block(query, catalog)
    assert type(caught.value) is error
