"""The plan of a refresh: whose rows it goes on from."""

from __future__ import annotations

from typing import Any, cast

import pytest

from strandline.jobs.ivm.refresh.context import Owner
from strandline.jobs.ivm.refresh.epoch import planned
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.model.tables import Relation
from strandline.state_store.commits import CommitRecord, Head
from tests.support.rule_harness import call, core, output

TABLE = Relation("t", (("id", t.INT), ("x", t.DOUBLE)), "keyed", ("id",))
STAGE = AggregateStage(
    "v", (core(TABLE),), (), (call("__a0", "SUM", [("x", t.DOUBLE)]),), (output("s", "__a0", t.DOUBLE),), ()
)
NOWHERE = cast(Any, None)


@pytest.mark.parametrize(
    ("recorded", "message", "hint"),
    [
        ("0123456789abcdef", "in another form", "strandline rebuild v"),
        ("0123456789abcdef.3", "in another form", "strandline rebuild v"),
        ("fedcba9876543210.2", "by another definition", "DROP it"),
    ],
)
def test_rows_of_another_form_or_definition_are_not_read(recorded: str, message: str, hint: str) -> None:
    head = Head(3, CommitRecord(epoch=2, fingerprint=recorded))
    with pytest.raises(RefreshFailed, match=message) as caught:
        planned(NOWHERE, STAGE, Owner("0123456789abcdef.2"), head, (), "auto")
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("recorded", ["", "0123456789abcdef.2"])
def test_rows_of_this_form_are_gone_on_from(recorded: str) -> None:
    head = Head(3, CommitRecord(epoch=2, fingerprint=recorded))
    found = planned(NOWHERE, STAGE, Owner("0123456789abcdef.2"), head, (), "auto")
    assert found.mode == "none"  # type: ignore[union-attr]  # no input, so nothing to take in
