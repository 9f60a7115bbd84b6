"""A text is read as a whole before anything is executed; SET takes known properties alone."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import OptionRefused, SqlSyntaxError
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import STREAM, rows, run


def test_a_text_that_cannot_be_read_executes_nothing(session: Interpreter) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        run(session, STREAM + "\nSELEC 1;")
    assert (caught.value.line, session.catalog.names()) == (2, ())


# SET and UNSET: only the properties that are known.


def from_latest(session: Interpreter) -> bool:
    """Where the session's queries begin."""
    return session.properties.from_latest


def test_only_known_properties_can_be_set(session: Interpreter) -> None:
    run(session, "SET 'auto.offset.reset' = 'latest'")
    assert from_latest(session)
    assert rows(session, "SHOW PROPERTIES") == [{"property": "auto.offset.reset", "value": "latest"}]
    run(session, "UNSET 'auto.offset.reset'")
    assert not from_latest(session)
    for text in ("SET 'auto.offset.reset' = 'middle'", "SET 'sasl.jaas.config' = 'x'", "UNSET 'x'"):
        with pytest.raises(OptionRefused):
            run(session, text)
