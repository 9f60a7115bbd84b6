"""A text of several statements: read as a whole before anything is executed."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import SqlSyntaxError
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import STREAM, run


def test_a_text_that_cannot_be_read_executes_nothing(session: Interpreter) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        run(session, STREAM + "\nSELEC 1;")
    assert (caught.value.line, session.catalog.names()) == (2, ())
