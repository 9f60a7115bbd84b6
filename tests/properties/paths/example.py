"""An example: relations, views over them and a history; how it is made, and printed."""

from __future__ import annotations

import pprint
from collections import Counter
from dataclasses import dataclass, field

from tests.properties.paths.history import Epoch, Event, history
from tests.properties.paths.view_grammar import Views, relations
from tests.properties.paths.views import Relation, ViewOf
from tests.properties.picker import Picker

VIEWS = 8
"""Views that share a history share its making and feeding. Each with its history is an example."""


@dataclass
class Tally:
    """What was checked, over many examples.

    Attributes:
        forms: views by the rule of the grammar that made them.
        ways: answers that were compared, by way.
        failing: views with a row at the end on which an expression fails.
        rows: of all views at the end.
        shared: first loads of tables that tasks shared.
    """

    forms: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    failing: int = 0
    rows: int = 0
    shared: int = 0

    @property
    def examples(self) -> int:
        return self.forms.total()

    def __str__(self) -> str:
        forms = ", ".join(f"{form} {count}" for form, count in self.forms.most_common())
        asked = ", ".join(f"{way} {count}" for way, count in self.ways.most_common())
        return (
            f"{self.examples} examples (a view and its history): {forms}; {self.failing} have rows that fail,"
            f" {self.rows} rows, {self.shared} first loads were shared by tasks; answers compared: {asked}"
        )


@dataclass(frozen=True)
class Example:
    """Relations, views over them, and what comes, epoch by epoch.

    Attributes:
        replaced: a view that is created again with another query, and the number of the epoch before which it is.
    """

    relations: tuple[Relation, ...]
    views: tuple[ViewOf, ...]
    epochs: tuple[Epoch, ...]
    replaced: tuple[int, ViewOf] | None = None

    def events(self, epochs: int | None = None) -> list[Event]:
        """What has come after so many epochs; None: all."""
        return [event for epoch in self.epochs[:epochs] for event in epoch]

    def __str__(self) -> str:
        """Its statements and its history; and all of it as it can be pasted into a test."""
        given = [each.statement for each in self.relations] + [each.statement for each in self.views]
        if self.replaced is not None:
            number, view = self.replaced
            given.append(f"{view.again} -- before epoch {number}")
        statements = "\n".join(given)
        return f"{statements}\n{pprint.pformat(self.epochs, width=160, sort_dicts=False)}\n\n{self!r}"


def example(pick: Picker, tally: Tally, views: int = VIEWS) -> Example:
    """A random example."""
    known = relations(pick)
    grammar = Views(pick, known)
    made = [grammar.view(f"v{number}") for number in range(views)]
    tally.forms.update(form for form, _ in made)
    epochs = history(pick, known)
    replaced = None
    if len(epochs) > 1 and pick.chance(50):
        view = pick.one([view for _, view in made])
        other = grammar.changed(view)
        # The same definition again changes nothing.
        replaced = (pick.count(1, len(epochs) - 1), other) if other != view else None
    return Example(known, tuple(view for _, view in made), epochs, replaced)
