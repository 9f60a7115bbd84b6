"""Proof that a plan keeps every condition of its query.

Before a query is planned, each of its conditions is marked: what AND joins in ON, WHERE, HAVING and QUALIFY, and each
FILTER. A mark is no text. It goes along when the planner copies, moves and merges trees, and must be found again where
a stage filters or joins; an ON also at a join of its kind. And a stage must read each relation of the query.

    FROM a JOIN b ON a.x = b.x AND b.y > 1 WHERE a.z = 2      marks  1: a.x = b.x   2: b.y > 1   3: a.z = 2

    Core(inputs=(a, b on [1] AND [2]), where=[3])             all are there

That the rule's text says what the stage says, `jobs.ivm.rules.maintenance` checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from strandline.jobs.model.errors import ConditionLost
from strandline.jobs.model.stage import (
    JOIN_WORDS,
    AggregateStage,
    AnalyticStage,
    Core,
    JoinType,
    LatestStage,
    Stage,
    body_of,
    inputs_of,
)
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.logical import Block, From, Query, Recursion, SetOperation, relations_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import MARK, columns_in, conjuncts


@dataclass(frozen=True)
class Condition:
    """A condition of the query, for the error's words.

    Attributes:
        clause: `WHERE`, `LEFT JOIN … ON`, ….
        join: the kind of the join that it is the condition of; None in other clauses.
    """

    clause: str
    text: str
    join: JoinType | None = None


@dataclass(frozen=True)
class Conditions:
    """A query whose conditions are marked, and what the marks stand for.

    Attributes:
        conditions: by their marks: 0, 1, ….
    """

    query: Query
    conditions: Sequence[Condition]

    def check(self, view: str, stages: Iterable[Stage]) -> None:
        """Check that stages made of the query keep all of it.

        Args:
            stages: those of the plan, and those in whose place an equal one stands there.

        Raises:
            ConditionLost: a condition, or a relation, that no stage has.
        """
        stages = tuple(stages)
        found = {place for stage in stages for place in _filters(stage)}
        for mark, condition in enumerate(self.conditions):
            if (mark, condition.join) not in found:
                raise ConditionLost.of(view, f"{condition.clause} {condition.text}")
        read = {each.relation.name for stage in stages for each in inputs_of(stage)}
        for relation in relations_of(self.query):
            if relation.name not in read:
                raise ConditionLost.of(view, f"FROM {relation.name}")


def conditions_of(query: Query) -> Conditions:
    """The query with marks at copies of its conditions; a query that is read twice has marks for each time."""
    marks = _Marks()
    return Conditions(marks.query(query), marks.found)


@dataclass
class _Marks:
    found: list[Condition] = field(default_factory=list)

    def query(self, query: Query) -> Query:
        if isinstance(query, SetOperation):
            return replace(query, branches=tuple(self.query(each) for each in query.branches))
        if isinstance(query, Recursion):
            return replace(query, seed=self.query(query.seed), steps=tuple(self._block(each) for each in query.steps))
        return self._block(query)

    def _block(self, block: Block) -> Block:
        filters: dict[str, exp.Expression] = {}
        for call in block.calls:
            if call.filter is not None and sql_of(call.filter) not in filters:
                # Calls with one filter share the column that it becomes, so they share the mark.
                filters[sql_of(call.filter)] = self._marked(call.filter, "FILTER (WHERE …)")
        return replace(
            block,
            inputs=tuple(self._input(each) for each in block.inputs),
            where=self._all(block.where, "WHERE"),
            calls=tuple(
                replace(call, filter=filters[sql_of(call.filter)]) if call.filter is not None else call
                for call in block.calls
            ),
            having=self._all(block.having, "HAVING"),
            qualify=self._all(block.qualify, "QUALIFY"),
        )

    def _input(self, source: From) -> From:
        within = source.source if isinstance(source.source, Relation) else self.query(source.source)
        return replace(source, source=within, on=self._all(source.on, f"{JOIN_WORDS[source.join]} … ON", source.join))

    def _all(self, node: exp.Expression | None, clause: str, join: JoinType | None = None) -> exp.Expression | None:
        if node is None:
            return None
        made = node.copy()
        for each in conjuncts(made):
            self._mark(each, clause, join)
        return made

    def _marked(self, node: exp.Expression, clause: str) -> exp.Expression:
        made = node.copy()
        self._mark(made, clause, None)
        return made

    def _mark(self, node: exp.Expression, clause: str, join: JoinType | None) -> None:
        node.meta[MARK] = len(self.found)
        self.found.append(Condition(clause, sql_of(node), join))


def _filters(stage: Stage) -> Iterator[tuple[int, JoinType | None]]:
    """The marks at what the stage filters by; those at the condition of a join with its kind."""
    if isinstance(stage, LatestStage):
        return
    for core in body_of(stage):
        for each in core.inputs:
            for mark in _marks(each.on):
                yield mark, each.join
                yield mark, None
        yield from ((mark, None) for mark in _marks(core.where))
    if isinstance(stage, AnalyticStage):
        yield from ((mark, None) for mark in _marks(stage.keep))
    if isinstance(stage, AggregateStage):
        names = {column.name for call in stage.aggregates if call.filter for column in columns_in(call.filter)}
        yield from ((mark, None) for core in stage.body for mark in _columns(core, names))


def _columns(core: Core, names: Iterable[str]) -> Iterator[int]:
    for column in core.columns:
        if column.name in names:
            yield from _marks(column.expression)


def _marks(condition: exp.Expression | None) -> Iterator[int]:
    """The marks of a condition and of those that AND joins in it: what filters only under OR or NOT does not count."""
    if condition is None:
        return
    mark = condition.meta.get(MARK)
    if mark is not None:
        yield mark
    if isinstance(condition, exp.Paren | exp.And):
        for part in condition.iter_expressions():
            assert isinstance(part, exp.Expression)
            yield from _marks(part)
