"""Which calls of a GROUP BY are computed again where a group lost a row that may have decided them, from which rows.

    MAX(length), COUNT(*) of products JOIN visits, by category         the longest product of a category goes

    computed_again   MAX, from the rows of the join; COUNT(*) retracts, and never is
    bounds           a visit came to a product of length 7: of that category no product below 7 is needed

The rows of a group may be most of the join: what its bounds leave out, the epoch does not pay for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.ivm.rules.delta_join import PADDING
from strandline.jobs.ivm.rules.stored import reads_values
from strandline.jobs.model.stage import AggregateCall, AggregateStage, Body, Core, storage_of_body
from strandline.jobs.sql.trees import conjuncts

_CONSTANTS: Final = (exp.Literal, exp.Boolean)


@dataclass(frozen=True)
class Again:
    """Calls whose groups may have to be computed again, from the same rows.

    Attributes:
        rows: the cores that they read.
        number: ends the names of their relations.
    """

    calls: tuple[AggregateCall, ...]
    rows: Body
    number: str


def computed_again(stage: AggregateStage, *, first: bool = False) -> tuple[Again, ...]:
    """The calls whose groups may have to be computed again, by the rows that they take.

    Args:
        first: in the first refresh, in which nothing is lost.
    """
    found: dict[int, tuple[Body, list[AggregateCall]]] = {}
    for call in recomputed(stage):
        if function_of(call).of_all or not first:
            rows = read_by((call,), stage)
            place = sum(1 << at for at, core in enumerate(stage.body) if core in rows)
            found.setdefault(place, (rows, []))[1].append(call)
    return tuple(
        Again(tuple(calls), rows, str(number) if number else "") for number, (rows, calls) in enumerate(found.values())
    )


def recomputed(stage: AggregateStage) -> tuple[AggregateCall, ...]:
    """The calls whose groups may have to be computed again: they cannot retract rows, and the body does."""
    calls = (call for call in stage.aggregates if function_of(call).lost_type(call) is not None)
    return tuple(call for call in calls if storage_of_body(read_by((call,), stage)) == "keyed")


def read_by(calls: tuple[AggregateCall, ...], stage: AggregateStage) -> Body:
    """The cores whose rows the calls can take: a constant of a core may be one that a call's filter leaves out."""
    return tuple(core for core in stage.body if any(_may_take(call, core) for call in calls))


def _may_take(call: AggregateCall, core: Core) -> bool:
    constants = {each.name: each.expression for each in core.columns if isinstance(each.expression, _CONSTANTS)}
    for term in conjuncts(call.filter):
        if isinstance(term, exp.Column):
            value = constants.get(term.name)
            if isinstance(value, exp.Boolean) and not value.this:
                return False
        if isinstance(term, exp.EQ) and isinstance(term.this, exp.Column):
            value, wanted = constants.get(term.this.name), term.expression
            if isinstance(value, exp.Literal) and isinstance(wanted, exp.Literal) and value != wanted:
                return False
    return True


@dataclass(frozen=True)
class Bounds:
    """By which columns of one input its rows are left out that cannot decide a group which is computed again.

    Attributes:
        alias: of the input.
        groups: (the group's column, the input's).
        values: (the call, the input's column that is its argument).
    """

    alias: str
    groups: tuple[tuple[str, str], ...]
    values: tuple[tuple[AggregateCall, str], ...]

    def columns(self, engine: Engine) -> list[str]:
        """What is known of the values of a group: a column for each call, NULL where nothing is."""
        return [known(call, engine) for call, _ in self.values]

    def needed(self, groups: str, engine: Engine) -> str:
        """The condition that a row of the input may decide one of these groups, a relation with the columns above."""
        alias = engine.name(self.alias)
        same = [
            f"{alias}.{engine.name(column)} IS NOT DISTINCT FROM {groups}.{engine.name(group)}"
            for group, column in self.groups
        ]
        return " AND ".join([*same, self.may_decide(groups, engine)])

    def may_decide(self, groups: str, engine: Engine) -> str:
        """That condition, of a row and a group that belong together."""
        alias = engine.name(self.alias)
        deciding = [
            f"{groups}.{known(call, engine)} IS NULL OR {decides}"
            for call, column in self.values
            for decides in [
                function_of(call).may_decide(call, f"{alias}.{engine.name(column)}", f"{groups}.{known(call, engine)}")
            ]
        ]
        return f"({' OR '.join(deciding)})"


def bounds_of(stage: AggregateStage, again: Again) -> tuple[Bounds | None, ...]:
    """The bounds of each core, None of one that has none: its groups and values must be columns of one input, whose
    rows are all that the join has of it. Over one relation nothing is joined that could be left out."""
    if reads_values(stage) or not all(function_of(call).may_decide(call, "", "") for call in again.calls):
        return (None,) * len(again.rows)
    return tuple(_bounds(stage, again, core) for core in again.rows)


def _bounds(stage: AggregateStage, again: Again, core: Core) -> Bounds | None:
    made = {column.name: column.expression for column in core.columns}
    groups = [(group.name, through(group.expression, made)) for group in stage.group]
    values = [(call, through(call.arguments[0], made)) for call in again.calls]
    read = {each.table if isinstance(each, exp.Column) else "" for _, each in [*groups, *values]}
    aliases = {each.alias for each in core.inputs if each.join == "inner"}
    if len(core.inputs) < 2 or len(read) != 1 or not read <= aliases or any(i.join in PADDING for i in core.inputs):
        return None
    return Bounds(
        next(iter(read)),
        tuple((name, each.name) for name, each in groups),
        tuple((call, each.name) for call, each in values),
    )


def through(expression: exp.Expression, columns: Mapping[str, exp.Expression]) -> exp.Expression:
    """An expression over a body's columns; a plain one as the core computes it."""
    if isinstance(expression, exp.Column) and not expression.table:
        return columns.get(expression.name, expression)
    return expression


def known_columns(stage: AggregateStage, again: Again, engine: Engine) -> list[str]:
    """What is known of the values of a group (`Bounds.columns`); nothing where no core has bounds."""
    bounds = next(filter(None, bounds_of(stage, again)), None)
    return [] if bounds is None else bounds.columns(engine)


def known(call: AggregateCall, engine: Engine) -> str:
    """The column of what is known of the values that a call takes in a group."""
    return engine.name(f"{call.name}_known")
