"""The stages of a plan under construction: the names of their tables, and one stage in place of equal ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strandline.jobs.ivm.plan.arrangements import arrangement
from strandline.jobs.ivm.plan.conditions import conditions_of
from strandline.jobs.ivm.plan.lookups import lookups_apart
from strandline.jobs.ivm.plan.map import marked_stage
from strandline.jobs.ivm.plan.normal_form import digest_of
from strandline.jobs.ivm.rules.stored import form_of
from strandline.jobs.model import tables
from strandline.jobs.model.options import Semantics, State
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Plan, Stage
from strandline.jobs.model.stage_columns import relation_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.ivm.plan.rows import Rows
    from strandline.jobs.model.options import Semantics
    from strandline.jobs.query.logical import Query


@dataclass
class Stages:
    """Collects the inner stages of a view.

    Attributes:
        build: gives the stage that maintains a query.
        pipeline: views of one pipeline share stages; a table has one writer.
        first: the number of the first inner stage.
        made: the inner stages, each after what it reads.
        notes: reasons, for EXPLAIN.
        offered: every stage that was made, also those in whose place an equal one stands.
        places: rows of tables keep time and place of their newest events, for a function that goes by these.
    """

    view: str
    build: Callable[[Query, Stages], Stage]
    semantics: Semantics = "sql"
    state: State = "full"
    pipeline: str = ""
    first: int = 1
    made: list[Stage] = field(default_factory=list)
    offered: list[Stage] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    places: bool = False
    _known: dict[str, Relation] = field(default_factory=dict)

    def stored(self, query: Query) -> Relation:
        """The table of an inner stage that maintains `query`."""
        return self.add(self.build(query, self))

    def placed(self, needed: bool) -> Stages:
        """The same builder, for inner stages whose rows keep places, or need none."""
        return replace(self, places=needed)

    def marked(self, relation: Relation) -> Relation:
        """The relation with a column in its key that is never NULL."""
        self.note("FULL JOIN: an inner stage marks the rows of one side, since a key of theirs may be NULL")
        return self.add(marked_stage(relation))

    def arranged(self, rows: Rows) -> Rows:
        """Rows of a join, read from a table that holds the join when views share such tables."""
        return arrangement(rows, self) if self.state == "shared" and len(rows.inputs) > 1 else rows

    def add(self, stage: Stage) -> Relation:
        """The table of an inner stage; that of an equal stage, if there is one already."""
        stage = lookups_apart(stage, self)
        self.offered.append(stage)
        form = form_of((stage,))
        # A table that views share is found by its name: one in another form has another.
        digest = digest_of(stage, self.pipeline, *((f"form {form}",) if form > 1 else ()))
        found = self._known.get(digest)
        if found is not None:
            return found
        own = tables.inner_stage(self.view, self.first + len(self.made))
        table = tables.shared_stage(digest) if self.state == "shared" else own
        stored = replace(stage, table=table)
        self.made.append(stored)
        self._known[digest] = relation_of(stored)
        return self._known[digest]

    def note(self, text: str) -> None:
        """Keep a reason for EXPLAIN."""
        self.notes[text] = None

    def plan(self, query: Query) -> Plan:
        """The plan whose last stage maintains the query's rows in the view's own table.

        Raises:
            NotSupported: no stage can maintain it; the message says why.
            ConditionLost: a condition of the query would stand in no stage.
        """
        conditions = conditions_of(query)
        last = lookups_apart(self.build(conditions.query, self), self)
        conditions.check(self.view, (*self.offered, last))
        return Plan(self.view, (*self.made, replace(last, table=self.view)), tuple(self.notes))
