"""Elaboration of the constructors of ARRAY, MAP and STRUCT, and of access to their elements and fields."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.functions.render import OF_ARRAY
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.names import alike, differ_only_in_case
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.coercion import shared_type
from strandline.jobs.query.expressions.scope import Infer, Rules, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import identifier


def _element(node: exp.Bracket, typed: Infer) -> Typed:
    this, index = typed(node.this), typed(node.expressions[0])
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
        raise InvalidQuery("ARRAY[] has no type", hint="CAST(NULL AS ARRAY<…>), or give it an element")
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


def is_constant(node: exp.Expression) -> bool:
    """True if the expression is a literal, perhaps with a sign."""
    return isinstance(node, exp.Literal) or (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal))


NESTED: Rules = {exp.Bracket: _element, exp.Dot: _field, exp.Array: _array}
CONSTRUCTORS = {"STRUCT": _struct, "ROW": _row, "MAP": _map}
"""Calls whose arguments are pairs, by name."""
