"""TRANSFORM, FILTER and REDUCE: functions that are given a function.

    TRANSFORM(tags, x => UCASE(x))
    REDUCE(ratings, 0, (total, k, v) => total + v)

In the tree a variable is a bare identifier, never a column, so that who looks for the columns of an expression does
not find it. Over a map the function is elaborated to one over the map's entries, each a STRUCT of `k` and `v`:

    FILTER(ratings, (k, v) => v > 1)   ->   MAP_OF_PAIRS(FILTER(ENTRIES(ratings), __e0 => __e0->v > 1))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.functions.scalars.contract import common
from strandline.jobs.functions.scalars.higher_order import FORMS
from strandline.jobs.functions.scalars.maps import pairs_of
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import identifier

Variables = Mapping[str, Typed]
"""The value that each variable of the enclosing functions stands for."""
Bound = Callable[[exp.Expr, Variables], Typed]
"""Elaborates the body of a function within its variables."""


def variable(name: str, sql_type: SqlType) -> Typed:
    """A reference to a variable."""
    return Typed(identifier(name), sql_type)


def applied(function: str, items: exp.Expression, name: str, body: exp.Expression) -> exp.Anonymous:
    """`function(items, name => body)`."""
    made = exp.Lambda(this=body, expressions=[variable(name, t.NULL).expression])
    return exp.Anonymous(this=function, expressions=[items, made])


def higher_order(node: exp.Anonymous, typed: Infer, bound: Bound, depth: int) -> Typed:
    """Elaborate a call of TRANSFORM, FILTER or REDUCE; `depth` functions are around it already.

    Raises:
        TypeMismatch: no array or map, or a function that gives something else than is needed.
        InvalidQuery: not the arguments that the function takes.
    """
    name, arguments = node.name, list(node.expressions)
    if not arguments or isinstance(arguments[0], exp.Lambda):
        raise InvalidQuery(f"{name} takes an ARRAY or a MAP, and a function", hint=FORMS[name])
    source = typed(arguments[0])
    if source.type.base not in (BaseType.ARRAY, BaseType.MAP):
        raise TypeMismatch(f"{name} takes an ARRAY or a MAP, not {source.type}", hint=FORMS[name])
    of_map = source.type.base is BaseType.MAP
    if of_map:
        entries = exp.Anonymous(this="ENTRIES", expressions=[source.expression])
        source = Typed(entries, pairs_of(source.type))
    call = _Call(name, source, of_map, arguments[1:], typed, bound, f"__e{depth}")
    if name == "REDUCE":
        return call.reduced()
    return call.transformed() if name == "TRANSFORM" else call.filtered()


@dataclass(frozen=True)
class _Call:
    """One call, over the items of an array; those of a map are pairs that the function sees as two variables.

    Attributes:
        rest: the arguments after the array or map.
        entry: the variable that stands for a pair.
    """

    name: str
    source: Typed
    of_map: bool
    rest: Sequence[exp.Expr]
    typed: Infer
    bound: Bound
    entry: str

    def transformed(self) -> Typed:
        if not self.of_map:
            (function,) = self.functions(1)
            made, sql_type = self.over_items(function)
            return Typed(made, t.array(sql_type))
        bodies = [self.over_items(function) for function in self.functions(2)]
        (keys, key), (values, value) = bodies
        pair = exp.Anonymous(
            this="STRUCT",
            expressions=[
                exp.PropertyEQ(this=exp.to_identifier(field), expression=made.expressions[1].this)
                for field, made in (("k", keys), ("v", values))
            ],
        )
        pairs = applied("TRANSFORM", self.source.expression, self.entry, pair)
        return Typed(exp.Anonymous(this="MAP_OF_PAIRS", expressions=[pairs]), t.map_of(key, value))

    def filtered(self) -> Typed:
        (function,) = self.functions(1)
        made, sql_type = self.over_items(function)
        if sql_type.base not in (BaseType.BOOLEAN, BaseType.NULL):
            raise TypeMismatch(f"FILTER takes a condition; {sql_of(function)} gives {sql_type}")
        kept = Typed(exp.Anonymous(this="FILTER", expressions=made.expressions), self.source.type)
        if not self.of_map:
            return kept
        (_, key), (_, value) = self.source.type.args[0].fields
        return Typed(exp.Anonymous(this="MAP_OF_PAIRS", expressions=[kept.expression]), t.map_of(key, value))

    def reduced(self) -> Typed:
        if len(self.rest) != 2 or isinstance(self.rest[0], exp.Lambda):
            raise InvalidQuery(f"{self.name} takes a state and a function", hint=FORMS[self.name])
        function, state = self.rest[1], self.typed(self.rest[0])
        names = self.names(function, 3 if self.of_map else 2)
        body = self.body(function, names, state.type)
        sql_type = common(self.name, (state.type, body.type))
        if sql_type != state.type:
            body = self.body(function, names, sql_type)
        made = exp.Lambda(
            this=converted(body, sql_type).expression,
            expressions=[variable(each, t.NULL).expression for each in (names[0], self.item(names[1:]))],
        )
        parts = [self.source.expression, widened(state, sql_type).expression, made]
        return Typed(exp.Anonymous(this="REDUCE", expressions=parts), sql_type)

    def body(self, function: exp.Expr, names: Sequence[str], state: SqlType) -> Typed:
        return self.bound(function.this, {names[0]: variable(names[0], state), **self.variables(names[1:])})

    def over_items(self, function: exp.Lambda) -> tuple[exp.Anonymous, SqlType]:
        names = self.names(function, 2 if self.of_map else 1)
        body = self.bound(function.this, self.variables(names))
        return applied("TRANSFORM", self.source.expression, self.item(names), body.expression), body.type

    def item(self, names: Sequence[str]) -> str:
        return self.entry if self.of_map else names[0]

    def variables(self, names: Sequence[str]) -> Variables:
        item = self.source.type.args[0]
        if not self.of_map:
            return {names[0]: variable(names[0], item)}
        entry = variable(self.entry, item).expression
        return {
            name: Typed(exp.Dot(this=entry.copy(), expression=exp.to_identifier(field)), sql_type)
            for name, (field, sql_type) in zip(names, item.fields, strict=True)
        }

    def functions(self, number: int) -> list[exp.Lambda]:
        found = [each for each in self.rest if isinstance(each, exp.Lambda)]
        if len(found) != number or len(self.rest) != number:
            raise InvalidQuery(
                f"{self.name} of {'a MAP' if self.of_map else 'an ARRAY'} takes"
                f" {'one function' if number == 1 else f'{number} functions'}",
                hint=FORMS[self.name],
            )
        return found

    def names(self, function: exp.Expr, number: int) -> list[str]:
        if not isinstance(function, exp.Lambda):
            raise InvalidQuery(f"{self.name} takes a function", hint=FORMS[self.name])
        names = [each.name for each in function.expressions]
        if len(names) != number or len(set(names)) != number:
            raise InvalidQuery(
                f"the function of {self.name} takes {number} variable{'s' if number > 1 else ''}: {sql_of(function)}",
                hint=FORMS[self.name],
            )
        return names
