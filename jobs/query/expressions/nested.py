"""Elaboration of ARRAY, MAP and STRUCT: constructors, access, EXPLODE, their order, and TRANSFORM, FILTER and REDUCE.

The order of ARRAYs and STRUCTs: the first items or fields that differ decide, and NULL is greater than any value
there, as in DuckDB. Spark takes NULL for the least. So what is ordered, on both engines, is a key:

    [1, NULL]              [{__n0: false, __v0: 1}, {__n0: true, __v0: NULL}]
    {a: 1, b: NULL}        {__n0: false, __v0: 1, __n1: true, __v1: NULL}

A NULL in the place of the whole value stays NULL, and goes where ORDER BY says. By its names a key is known where an
expression is elaborated again: it orders itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.scalars.arrays import FORMS, OF_ARRAY
from strandline.jobs.functions.scalars.contract import common
from strandline.jobs.functions.scalars.maps import pairs_of
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.casts import converted, entries, widened
from strandline.jobs.query.expressions.coercion import is_constant, shared_type
from strandline.jobs.query.expressions.scope import Infer, Rules, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import call, identifier, is_not_null


def _element(node: exp.Bracket, typed: Infer) -> Typed:
    this, index = typed(node.this), typed(node.expressions[0])
    named = node.expressions[0] if len(node.expressions) == 1 and this.type.base is BaseType.STRUCT else None
    if isinstance(named, exp.Literal) and named.is_string:
        return typed(exp.Dot(this=node.this.copy(), expression=identifier(named.name)))
    if isinstance(named, exp.Literal) and named.is_int and 0 < int(named.name) <= len(this.type.fields):
        field, _ = this.type.fields[int(named.name) - 1]
        return typed(exp.Dot(this=node.this.copy(), expression=identifier(field)))
    if len(node.expressions) == 1 and this.type.base is BaseType.VARCHAR:
        place = node.expressions[0]
        return typed(call("ARRAY_SLICE", node.this, place, place))
    if len(node.expressions) != 1 or this.type.base not in (BaseType.ARRAY, BaseType.MAP):
        raise TypeMismatch(f"{this.type} has no elements: {sql_of(node)}", hint="a STRUCT's fields: column->field")
    if this.type.base is BaseType.MAP:
        key, value = this.type.args
        if t.common_type(key, index.type) != key:
            raise TypeMismatch(f"the keys of {sql_of(node.this)} are {key}, not {index.type}")
        return Typed(exp.Bracket(this=this.expression, expressions=[widened(index, key).expression]), value)
    if index.type.base not in (BaseType.INT, BaseType.BIGINT):
        raise TypeMismatch(f"the elements of an ARRAY are numbered by INT, not {index.type}")
    place = converted(index, t.INT).expression
    # Arrays count from 1, and element 0 is never there.
    known = is_constant(place) and sql_of(place) != "0"
    if not known and not (isinstance(place, exp.Anonymous) and place.name == "NULLIF"):
        place = exp.Anonymous(this="NULLIF", expressions=[place, exp.Literal.number(0)])
    made = exp.Bracket(this=this.expression, expressions=[place])
    made.meta[OF_ARRAY] = True
    return Typed(made, this.type.args[0])


def _field(node: exp.Dot, typed: Infer) -> Typed:
    this, written = typed(node.this), node.expression.name
    fields = dict(this.type.fields)
    if this.type.base is not BaseType.STRUCT:
        raise TypeMismatch(f"-> reaches into a STRUCT; {sql_of(node.this)} is {this.type}")
    # No two fields differ only in case, so that case decides nothing: `f->A` is the field a, or "A".
    name = written if written in fields else alike(written, fields)
    if name is None:
        raise UnknownName.among("field", written, fields)
    found = node.expression.copy() if name == written else identifier(name)
    return Typed(exp.Dot(this=this.expression, expression=found), fields[name])


def _array(node: exp.Array, typed: Infer) -> Typed:
    items = [typed(item) for item in node.expressions]
    if not items:
        return Typed(exp.Array(expressions=[]), t.array(t.NULL))
    items, sql_type = shared_type("ARRAY", items)
    return Typed(exp.Array(expressions=[item.expression for item in items]), t.array(sql_type))


def _struct(node: exp.Anonymous, typed: Infer) -> Typed:
    members = _pairs(node, "STRUCT(name := value, …)")
    names = [key.name for key, _ in members]
    if len(set(names)) != len(names) or not all(isinstance(key, exp.Identifier) for key, _ in members):
        raise InvalidQuery("the fields of a STRUCT need names, each its own: STRUCT(name := value, …)")
    for number, name in enumerate(names):
        taken = alike(name, names[:number])
        if taken is not None:
            raise InvalidQuery(differ_only_in_case("fields", taken, name))
    values = [typed(value) for _, value in members]
    pairs = [
        exp.PropertyEQ(this=key.copy(), expression=value.expression)
        for (key, _), value in zip(members, values, strict=True)
    ]
    fields = [(name, value.type) for name, value in zip(names, values, strict=True)]
    return Typed(exp.Anonymous(this="STRUCT", expressions=pairs), t.struct(*fields))


def _row(node: exp.Anonymous, typed: Infer) -> Typed:
    """ROW(a, b): a STRUCT with fields f1, f2, …, as in PostgreSQL."""
    if not node.expressions:
        raise InvalidQuery("ROW() has no field", hint="ROW(value, …)")
    values = [typed(value) for value in node.expressions]
    named = [(f"f{place}", value) for place, value in enumerate(values, 1)]
    pairs = [exp.PropertyEQ(this=identifier(name), expression=value.expression) for name, value in named]
    made = exp.Anonymous(this="STRUCT", expressions=pairs)
    return Typed(made, t.struct(*((name, value.type) for name, value in named)))


def _map(node: exp.Anonymous, typed: Infer) -> Typed:
    if len(node.expressions) == 2 and not any(isinstance(each, exp.PropertyEQ) for each in node.expressions):
        return typed(call("AS_MAP", *node.expressions))  # MAP(keys, values), as in DuckDB
    members = _pairs(node, "MAP(key := value, …)")
    keys = [typed(_key(key)) for key, _ in members]
    values = [typed(value) for _, value in members]
    keys, key_type = shared_type("the keys of MAP", [_named(key) for key in keys])
    values, value_type = shared_type("the values of MAP", values)
    pairs = [
        exp.PropertyEQ(this=key.expression, expression=value.expression)
        for key, value in zip(keys, values, strict=True)
    ]
    return Typed(exp.Anonymous(this="MAP", expressions=pairs), t.map_of(key_type, value_type))


def _named(key: Typed) -> Typed:
    """A key of a MAP, which cannot be NULL: as in ksqlDB, NULL becomes the text null."""
    if key.type.base is BaseType.NULL:
        return Typed(exp.Literal.string("null"), t.VARCHAR)
    known = is_constant(key.expression) or (
        isinstance(key.expression, exp.Anonymous) and key.expression.name == "COALESCE"
    )
    if key.type.base is not BaseType.VARCHAR or known:
        return key
    return Typed(exp.Anonymous(this="COALESCE", expressions=[key.expression, exp.Literal.string("null")]), t.VARCHAR)


def _pairs(node: exp.Anonymous, form: str) -> list[tuple[exp.Expression, exp.Expression]]:
    if not node.expressions or not all(isinstance(pair, exp.PropertyEQ) for pair in node.expressions):
        raise InvalidQuery(f"{node.name} is written {form}")
    return [(pair.this, pair.expression) for pair in node.expressions]


def _key(node: exp.Expression) -> exp.Expression:
    """The key of a MAP's entry: a bare name there is a column."""
    return exp.Column(this=node.copy()) if isinstance(node, exp.Identifier) else node


NESTED: Rules = {exp.Bracket: _element, exp.Dot: _field, exp.Array: _array}
CONSTRUCTORS = {"STRUCT": _struct, "ROW": _row, "MAP": _map}
"""Calls whose arguments are pairs, by name."""


# The arrays of table functions (EXPLODE and its like), whose items become rows.
#
# SELECT id, EXPLODE(tags) AS tag FROM t        one row per tag
# SELECT CUBE_EXPLODE(ARRAY[a, b]) AS ab FROM t  [NULL, NULL], [NULL, b], [a, NULL], [a, b]

TABLE_FUNCTIONS = frozenset({"EXPLODE", "UNNEST", "CUBE_EXPLODE"})
"""Names of the table functions, in upper case."""


def items_of(call: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate the array whose items become rows.

    Raises:
        TypeMismatch: the argument is no array (for EXPLODE, a map gives its entries), or there are several.
    """
    if len(call.expressions) != 1:
        raise TypeMismatch(f"{call.name} takes 1 argument, not {len(call.expressions)}")
    if call.name == "CUBE_EXPLODE":
        return typed(exp.Anonymous(this="COMBINATIONS", expressions=[call.expressions[0].copy()]))
    value = typed(call.expressions[0])
    if value.type.base is BaseType.MAP:
        return entries(value)
    if value.type.base is not BaseType.ARRAY:
        raise TypeMismatch(f"{call.name} takes an ARRAY, not {value.type}")
    return value


# TRANSFORM, FILTER and REDUCE: functions that are given a function.
#
#     TRANSFORM(tags, x => UCASE(x))
#     REDUCE(ratings, 0, (total, k, v) => total + v)
#
# In the tree a variable is a bare identifier, never a column, so that who looks for the columns of an expression does
# not find it. Over a map the function is elaborated to one over the map's entries, each a STRUCT of `k` and `v`:
#
#     FILTER(ratings, (k, v) => v > 1)   ->   MAP_OF_PAIRS(FILTER(ENTRIES(ratings), __e0 => __e0->v > 1))

Variables = Mapping[str, Typed]
"""The value that each variable of the enclosing functions stands for."""
Bound = Callable[[exp.Expr, Variables], Typed]
"""Elaborates the body of a function within its variables."""


def variable(name: str, sql_type: SqlType) -> Typed:
    """Refer to a variable of a lambda function."""
    return Typed(identifier(name), sql_type)


def applied(function: str, items: exp.Expression, name: str, body: exp.Expression) -> exp.Anonymous:
    """Build `function(items, name => body)`."""
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
        if any("." in each for each in names):
            raise InvalidQuery(f"a variable has no dot in its name: {sql_of(function)}")  # columns of inputs have one
        return names


def has_order(sql_type: SqlType) -> bool:
    """True if values of a nested type can be ordered: maps, and what holds some, cannot."""
    return sql_type.is_nested and not has_map(sql_type) and not is_key(sql_type)


def is_key(sql_type: SqlType) -> bool:
    """True for the type of a key."""
    inside = sql_type.args[0] if sql_type.base is BaseType.ARRAY else sql_type
    return inside.base is BaseType.STRUCT and inside.fields[0][0] == "__n0"


def order_key(value: Typed, typed: Infer) -> Typed:
    """What orders a value on both engines alike; a plain value orders itself, and a bare NULL nothing, like 1."""
    if value.type.base is BaseType.NULL:
        return typed(exp.Literal.number(1))
    return typed(_key_of(value.expression, value.type, 0)) if has_order(value.type) else value


def _key_of(node: exp.Expr, sql_type: SqlType, depth: int) -> exp.Expr:
    match sql_type.base:
        case BaseType.ARRAY:
            item = identifier(f"__inside{depth}")
            inside = _struct_of_keys([(exp.Column(this=item), sql_type.args[0])], depth + 1)
            return call("TRANSFORM", node, exp.Lambda(this=inside, expressions=[item.copy()]))
        case BaseType.STRUCT:
            whole = exp.Paren(this=node.copy())
            fields = [(exp.Dot(this=whole.copy(), expression=identifier(name)), of) for name, of in sql_type.fields]
            return exp.Case(ifs=[exp.If(this=is_not_null(whole), true=_struct_of_keys(fields, depth))])
        case _:
            return node.copy()


def _struct_of_keys(parts: Sequence[tuple[exp.Expr, SqlType]], depth: int) -> exp.Expr:
    """Of each item or field whether it is NULL, then its own key."""
    members: list[exp.Expr] = []
    for place, (node, sql_type) in enumerate(parts):
        is_null = exp.Is(this=node.copy(), expression=exp.Null())
        members.append(exp.PropertyEQ(this=identifier(f"__n{place}"), expression=is_null))
        members.append(exp.PropertyEQ(this=identifier(f"__v{place}"), expression=_key_of(node, sql_type, depth)))
    return call("STRUCT", *members)
