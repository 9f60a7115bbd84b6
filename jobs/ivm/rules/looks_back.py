"""What a stage reads again: the inputs of which its rule needs rows that it has taken in already.

    SELECT k, COUNT(*), MAX(v) FROM s GROUP BY k        delta_s                       looks back at nothing
    s JOIN t ON s.k = t.k                               delta_s new_t  old_s delta_t  looks back at s and t
    SELECT … FROM s WINDOW SESSION (…) GROUP BY k       delta_s new_s                 looks back at s

It is read from the rule's own text, in which a runtime finds the relations to make: what the text does not name it is
never given. The text for all inputs changed at once has the terms of every other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.late import late_rows
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.stage import inputs_of
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.jobs.model.stage import Stage


def looks_back(stage: Stage) -> frozenset[str]:
    """The names of the relations of which the stage's changes are computed from more than their changes."""
    every = frozenset(each.alias for each in inputs_of(stage))
    found: set[str] = set()
    written = 0
    for dialect in get_args(Dialect):
        try:
            texts = (maintenance(stage, dialect), late_rows(stage, dialect, every))
        except StrandlineError:
            continue  # an engine that lacks a function never runs the rule
        written += 1
        for text in (each for each in texts if each is not None):
            sides = relations(stage, text, engine_of(dialect))
            found |= {each.relation.name for _, side, each in sides if side != "delta"}
    return frozenset(found if written else (each.relation.name for each in inputs_of(stage)))
