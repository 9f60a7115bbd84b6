"""Constants that fail for every row are refused at CREATE; those that only some rows reach are not."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import STREAM, run


@pytest.mark.parametrize(
    ("select", "shown"),
    [
        ("SELECT id, 1 / 0 AS c FROM s", "1 / 0"),
        ("SELECT id, CAST('x' AS INT) AS c FROM s", "CAST('x' AS INT)"),
        ("SELECT id, CAST('2024-13-01' AS DATE) AS c FROM s", "CAST('2024-13-01' AS DATE)"),
        ("SELECT id FROM s WHERE id > 10 / (5 - 5)", "10 / (5 - 5)"),
        ("SELECT id, id + CAST('x' AS INT) AS c FROM s", "CAST('x' AS INT)"),
        ("SELECT id, 2147483647 + 1 / 0 AS c FROM s", "2147483647 + 1 / 0"),
    ],
)
def test_a_constant_without_a_value_is_refused(settings: Settings, select: str, shown: str) -> None:
    session = Interpreter(settings)
    run(session, STREAM)
    with pytest.raises(InvalidQuery) as refused:
        run(session, f"CREATE MATERIALIZED VIEW z AS {select}")
    assert refused.value.message == f"{shown} has no value: every row would fail"
    assert refused.value.line == 1
    assert session.catalog.find("z") is None
    run(session, f"CREATE MATERIALIZED VIEW z WITH (ERRORS = 'null') AS {select}")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id, CASE WHEN id > 1 THEN 1 / 0 END AS c FROM s",
        "SELECT id, id > 1 AND 1 / 0 > 1 AS c FROM s",
        "SELECT id, COALESCE(id, 1 / 0) AS c FROM s",
        "SELECT id, TRY_CAST('x' AS INT) AS c FROM s",
        "SELECT id, 6 / 2 AS a, CAST('1' AS INT) AS b, CAST(NULL AS INT) AS c, -(1) AS d, UPPER('a') AS e FROM s",
        "SELECT id, id / 0 AS c FROM s",
    ],
)
def test_what_some_rows_may_not_reach_is_taken(settings: Settings, select: str) -> None:
    session = Interpreter(settings)
    run(session, STREAM)
    run(session, f"CREATE MATERIALIZED VIEW z AS {select}")
    assert session.catalog.find("z") is not None
