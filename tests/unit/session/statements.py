"""Two statements that most tests of a session begin with, and results by their kind."""

from __future__ import annotations

from strandline.jobs.serve.results import Message, Result, Rows
from strandline.jobs.session.interpreter import Interpreter

STREAM = "CREATE STREAM s (id BIGINT KEY, name VARCHAR, d DECIMAL(6, 2)) WITH (KAFKA_TOPIC = 't', PARTITIONS = 3);"
VIEW = "CREATE TABLE v AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"


def run(session: Interpreter, text: str) -> Result:
    """The result of the last statement."""
    *_, last = session.run(text)
    return last


def message(session: Interpreter, text: str) -> str:
    found = run(session, text)
    assert isinstance(found, Message)
    return found.text


def rows(session: Interpreter, text: str) -> list[dict[str, object]]:
    found = run(session, text)
    assert isinstance(found, Rows)
    return [dict(zip(found.names, row, strict=True)) for row in found.rows]
