"""The texts of a rule are made once, and are those of `maintenance`."""

from __future__ import annotations

import pytest

from jobs.engines.engine import Dialect
from jobs.ivm.rules import stage_rule
from jobs.ivm.rules.maintenance import maintenance
from jobs.ivm.rules.stage_rule import StageRule
from jobs.model import types as t
from jobs.model.stage import Stage
from tests.support.rule_harness import append_log, mapped, output

STAGE = mapped(append_log((("v", t.INT),)), "v > 0", [output("v", "v", t.INT)])


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_text_is_that_of_the_rule(dialect: Dialect) -> None:
    rule = StageRule(STAGE, dialect)
    for changed in ((), ["s"], None):
        assert rule.text(changed) == maintenance(STAGE, dialect, changed)


def test_a_text_is_made_once_for_each_set_of_changed_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(stage: Stage, dialect: Dialect, changed: frozenset[str] | None) -> str:
        made.append(changed)
        return maintenance(stage, dialect, changed)

    monkeypatch.setattr(stage_rule, "maintenance", counted)
    rule = StageRule(STAGE, "duckdb")
    for _ in range(2):
        rule.text(["s"])
        rule.text(("s",))
        rule.text(None)
    assert made == [frozenset({"s"}), None]
