"""SET and UNSET: only the properties that are known."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import OptionRefused
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import rows, run


def from_latest(session: Interpreter) -> bool:
    """Where the session's queries begin."""
    return session.session.from_latest


def test_only_known_properties_can_be_set(session: Interpreter) -> None:
    run(session, "SET 'auto.offset.reset' = 'latest'")
    assert from_latest(session)
    assert rows(session, "SHOW PROPERTIES") == [{"property": "auto.offset.reset", "value": "latest"}]
    run(session, "UNSET 'auto.offset.reset'")
    assert not from_latest(session)
    for text in ("SET 'auto.offset.reset' = 'middle'", "SET 'sasl.jaas.config' = 'x'", "UNSET 'x'"):
        with pytest.raises(OptionRefused):
            run(session, text)
