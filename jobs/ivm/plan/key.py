"""The key of joined rows: the fewest key columns of the inputs that tell the rows apart.

    orders (key id) JOIN users (key name) ON users.name = orders.user      key: orders.id
    a (key id) LEFT JOIN b (key id) ON a.id = b.id                         key: a.id
    a (key id) FULL JOIN b (key id) ON a.id = b.id                         key: a.id, b.id
    s (a stream) LEFT JOIN t (a stream) ON s.k = t.k                       key: s._partition, s._offset, t._partition, …

An input drops out when the join's equalities make its whole key a function of the inputs that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Input
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.places import Place, columns_in, place_of
from strandline.jobs.sql.trees import conjuncts
from strandline.jobs.sql.types_text import type_of
from strandline.state_store.wording import Name, sentence

Types = Mapping[Place, SqlType]


@dataclass(frozen=True)
class KeyColumn:
    """A column of an input that is part of the key.

    Attributes:
        same: the places of the columns that always have the same value, its own among them.
    """

    alias: str
    name: str
    type: SqlType
    same: frozenset[Place]

    @property
    def expression(self) -> exp.Column:
        return named(self.name, self.alias)


def giving(inputs: Sequence[Input]) -> list[Input]:
    """The inputs whose columns can be read after the joins."""
    return [each for each in inputs if each.join not in ("semi", "anti")]


def key_of(inputs: Sequence[Input], where: exp.Expression | None) -> tuple[KeyColumn, ...]:
    """The key of the rows of a core.

    Raises:
        NotSupported: the rows of an input cannot be told apart.
    """
    rules = list(_rules(inputs, where))
    kept = [each.alias for each in giving(inputs)]
    for each in reversed(giving(inputs)):
        without = [alias for alias in kept if alias != each.alias]
        if each.alias in _determined(inputs, rules, without):
            kept = without
    equal = _equal_columns(inputs, where)
    found = []
    for each in giving(inputs):
        if each.alias in kept:
            for name in _identity(each):
                same = _class_of((each.alias, name), equal)
                found.append(KeyColumn(each.alias, name, each.relation.type_of(name), same))
    return tuple(found)


def _identity(each: Input) -> tuple[str, ...]:
    """The columns that tell the input's rows apart. AS OF a time a table has one row per key, its log has many."""
    if each.relation.storage == "keyed" or each.as_of:
        return each.relation.key
    if not each.relation.identity:
        raise NotSupported(
            sentence(
                "the rows of '{}' cannot be told apart, and what is asked of them here needs that",
                Name(each.relation.name),
            ),
            hint="explode, or join streams, after this",
        )
    return each.relation.identity


@dataclass(frozen=True)
class _Rule:
    """The column at `place` is a function of the inputs `of`."""

    place: Place
    of: frozenset[str]


def _rules(inputs: Sequence[Input], where: exp.Expression | None) -> Iterator[_Rule]:
    """The rules that equalities give. One of an outer join holds only from the side with all its rows to the other."""
    types = {(each.alias, name): sql_type for each in inputs for name, sql_type in each.relation.columns}
    for condition in conjuncts(where):
        for place, other in _sides(condition, types):
            yield _Rule(place, _aliases(other))
    for each in giving(inputs):
        for condition in conjuncts(each.on):
            for place, other in _sides(condition, types):
                own = place[0] == each.alias
                if each.join == "inner" or each.join == ("left" if own else "right"):
                    yield _Rule(place, _aliases(other))


def _sides(condition: exp.Expression, types: Types) -> Iterator[tuple[Place, exp.Expression]]:
    if not isinstance(condition, exp.EQ):
        return
    for side, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        place = place_of(_widened(side, types))
        if place is not None:
            yield place, other


def _widened(node: exp.Expression, types: Types) -> exp.Expression:
    """The operand of a cast of a whole number to a wider type, which keeps the numbers apart; else the node."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Cast):
        return node
    place = place_of(node.this)
    whole = place is not None and place in types and types[place].base in (BaseType.INT, BaseType.BIGINT)
    inner: exp.Expression = node.this
    return inner if whole and type_of(node.to).base in (BaseType.BIGINT, BaseType.DECIMAL) else node


def _aliases(node: exp.Expression) -> frozenset[str]:
    return frozenset(column.table for column in columns_in(node))


def _determined(inputs: Sequence[Input], rules: list[_Rule], kept: list[str]) -> set[str]:
    known = set(kept)
    while True:
        fixed = {rule.place for rule in rules if rule.of <= known}
        more = {
            each.alias
            for each in giving(inputs)
            if each.alias not in known
            and (each.relation.storage == "keyed" or each.relation.identity)
            and all((each.alias, name) in fixed for name in _identity(each))
        }
        if not more:
            return known
        known |= more


def _equal_columns(inputs: Sequence[Input], where: exp.Expression | None) -> list[tuple[Place, Place]]:
    conditions = [*conjuncts(where)]
    for each in giving(inputs):
        if each.join == "inner":
            conditions += conjuncts(each.on)
    pairs = []
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            left, right = place_of(condition.this), place_of(condition.expression)
            if left is not None and right is not None:
                pairs.append((left, right))
    return pairs


def _class_of(place: Place, pairs: list[tuple[Place, Place]]) -> frozenset[Place]:
    found = {place}
    while True:
        more = {b for a, b in pairs if a in found} | {a for a, b in pairs if b in found}
        if more <= found:
            return frozenset(found)
        found |= more
