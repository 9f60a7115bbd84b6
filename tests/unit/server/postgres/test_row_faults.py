"""What a query fails by on a row, as the SQLSTATE that PostgreSQL's users expect."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

Session = psycopg.Connection[Any]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT 10 / (id - 3) AS x FROM by_id", errors.DivisionByZero),
        ("SELECT 10 % (id - 3) AS x FROM by_id", errors.DivisionByZero),
        ("SELECT town, 1 / (SUM(id) - 2) AS x FROM by_id GROUP BY town", errors.DivisionByZero),
        ("SELECT SUM(1 / (id - 3)) AS x FROM by_id", errors.DivisionByZero),
        ("SELECT TRANSFORM(ARRAY[id], x => 1 / x) AS x FROM by_id", errors.DivisionByZero),
        ("SELECT b.town FROM by_id a JOIN by_id b ON 10 / (a.id - 3) = b.id", errors.DivisionByZero),
        ("SELECT id FROM by_id WHERE 1 / (id - 3) > 0", errors.DivisionByZero),
        ("SELECT 1 / 0", errors.DivisionByZero),
        ("SELECT CAST(town AS INT) AS x FROM by_id", errors.InvalidTextRepresentation),
        ("SELECT CAST(town AS DECIMAL(9, 2)) AS x FROM by_id", errors.InvalidTextRepresentation),
        ("SELECT CAST('five' AS INT)", errors.InvalidTextRepresentation),
        ("SELECT CAST(town AS INT) + 1 AS x FROM by_id", errors.InvalidTextRepresentation),
        ("SELECT CAST('9999999999' || town AS INT) AS x FROM by_id", errors.InvalidTextRepresentation),
        ("SELECT CAST('999999999' || CAST(id AS VARCHAR) AS INT) AS x FROM by_id", errors.NumericValueOutOfRange),
        ("SELECT CAST('9999999999' AS INT)", errors.NumericValueOutOfRange),
        ("SELECT CAST(id * 1000000000 AS INT) AS x FROM by_id", errors.NumericValueOutOfRange),
        ("SELECT id * 9223372036854775807 AS x FROM by_id", errors.NumericValueOutOfRange),
        ("SELECT -(id - 9223372036854775807 - 2) AS x FROM by_id", errors.NumericValueOutOfRange),
        ("SELECT SUM(n + 2000000000000000000) AS x FROM visits", errors.NumericValueOutOfRange),
        ("SELECT CAST(town AS DATE) AS x FROM by_id", errors.InvalidDatetimeFormat),
        ("SELECT CAST(town AS TIMESTAMP) AS x FROM by_id", errors.InvalidDatetimeFormat),
        ("SELECT CAST(town AS TIME) AS x FROM by_id", errors.InvalidDatetimeFormat),
        ("SELECT FROM_DAYS(CAST(id AS INT) * 100000000) AS x FROM by_id", errors.DatetimeFieldOverflow),
        ("SELECT REGEXP_EXTRACT(town || '(', 'x') AS x FROM by_id", errors.InvalidRegularExpression),
        ("SELECT LPAD(town, CAST(id AS INT) * 100000000, 'x') AS x FROM by_id", errors.ProgramLimitExceeded),
        ("SELECT (SELECT id FROM by_id) AS x FROM places", errors.CardinalityViolation),
        (
            "SELECT SUM(id) OVER (ORDER BY id ROWS BETWEEN id - 4 PRECEDING AND CURRENT ROW) AS x FROM by_id",
            errors.InvalidPrecedingOrFollowingSize,
        ),
    ],
)
def test_what_fails(session: Session, query: str, error: type[psycopg.Error]) -> None:
    with pytest.raises(error) as raised:
        session.execute(query)
    assert raised.value.diag.message_hint


@pytest.mark.parametrize(("id_", "error"), [(3, errors.DivisionByZero), (4, errors.InvalidTextRepresentation)])
def test_of_several_ways_the_one_that_the_row_fails_by(session: Session, id_: int, error: type[psycopg.Error]) -> None:
    both = f"1 / (id - 3) + CASE WHEN id = 4 THEN CAST(town AS INT) ELSE 0 END AS x FROM by_id WHERE id = {id_}"
    for query in (f"SELECT {both}", f"SELECT x FROM (SELECT {both}) AS q WHERE x > 0"):
        with pytest.raises(error):
            session.execute(query)


@pytest.mark.parametrize(
    ("inner", "error"),
    [
        ("SELECT 1 / (id - 3) AS x FROM by_id", errors.DivisionByZero),
        ("SELECT id AS x FROM by_id WHERE 1 / (id - 3) > 0", errors.DivisionByZero),
        (
            "SELECT y + 1 AS x FROM (SELECT CAST(town AS INT) + id AS y FROM by_id) AS r",
            errors.InvalidTextRepresentation,
        ),
        (
            "SELECT id AS x FROM by_id UNION ALL SELECT CAST(town AS BIGINT) AS x FROM by_id",
            errors.InvalidTextRepresentation,
        ),
    ],
)
def test_of_a_subquery(session: Session, inner: str, error: type[psycopg.Error]) -> None:
    with pytest.raises(error) as raised:
        session.execute(f"SELECT x FROM ({inner}) AS q WHERE x > 0")
    assert "fails on a row" in str(raised.value.diag.message_primary)
