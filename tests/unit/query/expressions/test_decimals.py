"""DECIMAL without digits: it keeps those of an exact number, and is refused where nobody knows how many."""

from __future__ import annotations

from decimal import Decimal

import pytest

from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    made = Interpreter(settings)
    text = "CREATE STREAM s (i INT, b BIGINT, d DOUBLE, p DECIMAL(6, 1), x VARCHAR) WITH (KAFKA_TOPIC = 's');"
    assert list(made.run(text))
    return made


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("22910.4::NUMERIC", "22910.4"),
        ("CAST(-7 AS DECIMAL)", "-7"),
        ("9223372036854775807::DECIMAL", "9223372036854775807"),
    ],
)
def test_an_exact_number_keeps_its_digits(session: Interpreter, written: str, value: str) -> None:
    (found,) = session.run(f"SELECT {written} AS n;")
    assert isinstance(found, Rows)
    assert [tuple(row) for row in found.rows] == [(Decimal(value),)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CAST(d AS DECIMAL) AS n FROM s;",
        "SELECT x::NUMERIC AS n FROM s;",
        "CREATE MATERIALIZED VIEW v AS SELECT x::NUMERIC AS n FROM s;",
        "CREATE STREAM t (n DECIMAL) WITH (KAFKA_TOPIC = 't');",
        "CREATE TABLE t (k INT PRIMARY KEY, n ARRAY<NUMERIC>) WITH (KAFKA_TOPIC = 't');",
    ],
)
def test_digits_that_nobody_knows_are_asked_for(session: Interpreter, text: str) -> None:
    with pytest.raises(TypeMismatch, match="DECIMAL says how many digits it has") as refused:
        list(session.run(text))
    assert "DECIMAL(38, 9)" in str(refused.value.hint)
