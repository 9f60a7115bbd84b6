"""Makes a failing scenario smaller: hypothesis would take minutes, since it does not know what a statement is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import duckdb

from tests.properties.scenario import Scenario

_NAME = re.compile(r"CREATE (?:STREAM|TABLE|MATERIALIZED VIEW) (\w+)")


def failure(example: Scenario) -> str:
    """What the scenario fails with; empty when it passes."""
    with duckdb.connect(config={"threads": 1}) as db:
        try:
            example.check(db)
        except Exception as error:
            return str(error) or type(error).__name__
    return ""


def shrunk(example: Scenario) -> Scenario:
    """A part of a failing scenario that still fails, and no smaller part does."""
    while True:
        found = next((each for each in _parts(example) if failure(each)), None)
        if found is None:
            return example
        example = found


def _parts(example: Scenario) -> Iterator[Scenario]:
    """The scenario without one statement that no other reads, without one epoch, without one event."""
    for place, statement in enumerate(example.statements):
        others = (*example.statements[:place], *example.statements[place + 1 :])
        found = _NAME.match(statement)
        assert found is not None
        name = found[1]
        if not any(re.search(rf"\b{name}\b", each) for each in others):
            kept = tuple(
                {log: rows for log, rows in b.items() if log.removesuffix("__log") != name} for b in example.history
            )
            yield Scenario(others, kept)
    for place, batch in enumerate(example.history):
        before, after = example.history[:place], example.history[place + 1 :]
        if not batch:
            yield replace(example, history=(*before, *after))
        for log, rows in batch.items():
            for event in range(len(rows)):
                fewer = {**batch, log: [*rows[:event], *rows[event + 1 :]]}
                yield replace(example, history=(*before, {key: each for key, each in fewer.items() if each}, *after))
