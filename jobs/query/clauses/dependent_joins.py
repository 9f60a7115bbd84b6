"""Dependent joins: a subquery that is computed once for each different value that it reads of the query around it.

    (SELECT COUNT(*) FROM u WHERE u.k = t.k AND u.w < t.a)

    __values   SELECT DISTINCT t.k AS __d0, t.a AS __d1 FROM t
    __s0       SELECT __d0 AS __v0, __d1 AS __v1, COUNT(*) FROM u JOIN __values ON u.k = __d0 AND u.w < __d1
               GROUP BY __d0, __d1
    outside    LEFT JOIN __s0 ON __s0.__v0 = t.k AND __s0.__v1 = t.a

So it needs no equality, and LATERAL may group, order and limit. Source: Neumann and Kemper, Unnesting Arbitrary Queries
(BTW 2015). The values may be more than those that the query around keeps: what is computed for them joins nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.stage import AggregateCall, Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import BOOLEAN, BaseType, SqlType, array
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import (
    OUTER,
    Inputs,
    ReadableColumns,
    conjoined,
    expressions_of,
    from_outside,
    levels_out,
)
from strandline.jobs.query.logical import Block, From, Query, SetOperation, mapped, outputs_of, padded_in
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import Place, call, conjuncts

_VALUES = "__values"
_GROUPS = "__groups"
_THERE = "__there"
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Like)
_OF_NULL = (exp.Case, exp.If, exp.Is, exp.Or, exp.Not, exp.NullSafeEQ, exp.NullSafeNEQ)
# Functions that are NULL where an argument is: those that times and numbers are compared with.
_STRICT = (
    *("ADD_MILLISECONDS", "ADD_MONTHS", "ADD_DAYS", "BEGIN_OF_UNIT", "PART_OF_DATE", "UNIX_TIMESTAMP", "UNIX_MICROS"),
    *("FROM_UNIXTIME", "UNIX_DATE", "DIV", "ABS", "ROUND", "FLOOR", "CEIL", "LCASE", "UCASE", "INSTANT_TEXT"),
)


@dataclass(frozen=True)
class Dependent:
    """A subquery that reads nothing of the query around it any more.

    Attributes:
        block: it with the values that it read among its inputs.
        keys: an output for each of them; of a block that groups it is one of its groups.
        on: the conditions by which a row of the query around finds its own.
        there: of a block that groups, an output that is never NULL.
    """

    block: Block
    keys: tuple[Output, ...]
    on: tuple[exp.Expression, ...]
    there: str


def reads_around(block: Block) -> list[Place]:
    """The columns of the query around that a block reads, in the order of the text."""
    found = (node for tree in expressions_of(block) for node in tree.find_all(exp.Column) if levels_out(node) == 1)
    return list(dict.fromkeys((node.table, node.name) for node in found))


def one_source(places: Sequence[Place], around: Inputs) -> tuple[From, ...]:
    """The input of the query around that all the columns are of.

    Raises:
        NotSupported: they are of several.
    """
    parts = [around.part(table) for table in dict.fromkeys(table for table, _ in places)]
    part = parts[0] if len(parts) == 1 else None
    if part is None:
        raise NotSupported(
            "a subquery that reads several inputs of the query around it is joined by equalities",
            hint="join those inputs in a subquery in FROM, and read its columns",
        )
    return (From(part.alias, part.source),)


def dependent(
    block: Block,
    terms: Sequence[exp.Expression],
    places: Sequence[Place],
    froms: tuple[From, ...],
    alias: str,
    *,
    padded: bool,
    every: bool = False,
) -> Dependent:
    """Compute a block for each different value that it reads.

    Args:
        block: the subquery without the terms of its WHERE and ON that read the query around it.
        terms: those.
        places: all the columns of the query around that it reads.
        froms: the inputs of the query around that have them.
        alias: what the query around calls the result.
        padded: an outer join there may find none of their rows.
        every: each of the values has a row, whether any row meets the terms or not.

    Raises:
        NotSupported: a value is of a type that cannot be grouped by; or ON of a RIGHT or FULL JOIN reads one; or it
            reads a query further out, too.
    """
    scope = ReadableColumns(Block(froms, None, ()))
    outputs = []
    for number, (table, name) in enumerate(places):
        found = column(name, table)
        outputs.append(Output(f"__d{number}", found, scope.resolve(found).type))
    _check_no_further(block, terms)
    wrong = next((each for each in outputs if has_map(each.type)), None)
    if wrong is not None:
        raise NotSupported(f"a subquery cannot depend on {sql_of(wrong.expression)}, which is {wrong.type}")
    certain = _never_for_null(terms)
    values: Query = Block(froms, None, tuple(outputs), distinct=True)
    if padded and (every or not certain.issuperset(places)):
        values = _with_nulls(values, outputs)
    read = {place: column(each.name, _VALUES) for place, each in zip(places, outputs, strict=True)}

    def inside(node: exp.Expression) -> exp.Expression:
        return _inside(node, read)

    join = From(_VALUES, values, "inner", conjoined(map(inside, terms)) if terms else None)
    made = mapped(block, inside)
    # Who asks in ON must have the values before; the others find them last, by the terms.
    asked = any(each.on is not None and from_outside(each.on) for each in block.inputs)
    if asked and any(each.join in ("right", "full") for each in made.inputs):
        raise NotSupported(
            "ON of a RIGHT or FULL JOIN in a subquery does not read the query around it", hint="read it in WHERE"
        )
    first = asked or not made.inputs
    made = replace(made, inputs=(replace(join, on=None), *made.inputs) if first else (*made.inputs, join))
    if first and join.on is not None:
        made = replace(made, where=conjoined([join.on, *conjuncts(made.where)]))
    keys = tuple(
        Output(f"__v{number}", read[place], each.type)
        for number, (place, each) in enumerate(zip(places, outputs, strict=True))
    )
    on = []
    for place, key in zip(places, keys, strict=True):
        equal = exp.EQ if place in certain else exp.NullSafeEQ
        on.append(equal(this=column(key.name, alias), expression=column(place[1], place[0])))
    made = _with_keys(made, keys)
    there = next((key.name for place, key in zip(places, keys, strict=True) if place in certain), "")
    if not there and block.group is not None:
        there = _THERE
        made = replace(made, outputs=(*made.outputs, Output(there, exp.true(), BOOLEAN)))
    return Dependent(made, keys, tuple(on), there)


# LATERAL: a part of FROM that reads those before it.
#
# FROM t LEFT JOIN LATERAL (SELECT w FROM u WHERE u.k = t.k ORDER BY w DESC LIMIT 2) AS l ON TRUE
#
#     __values   SELECT DISTINCT t.k AS __d0 FROM t
#     l          SELECT w, __d0 AS __v0 FROM u JOIN __values ON u.k = __d0
#                QUALIFY ROW_NUMBER() OVER (PARTITION BY __d0 ORDER BY w DESC) <= 2
#     outside    FROM t LEFT JOIN l ON l.__v0 = t.k
#
# An aggregate without GROUP BY has a row for each of the values, also where nothing matches: those are joined with it.


@dataclass(frozen=True)
class Applied:
    """What LATERAL is joined as.

    Attributes:
        on: the conditions by which a row before it finds its own.
        columns: those that can be seen.
    """

    query: Query
    on: tuple[exp.Expression, ...]
    columns: tuple[tuple[str, SqlType], ...]


def applied(
    query: Query, names: Sequence[str], froms: tuple[From, ...], alias: str, padded: Collection[str] | None = None
) -> Applied:
    """Make an input of a query that reads those before it: of LATERAL, EXISTS, IN, or inside of such a query.

    Args:
        names: those that its columns get, of the first ones.
        froms: the inputs before it.
        alias: its own.
        padded: those of the inputs that an outer join pads, where they do not say it themselves.

    Raises:
        InvalidQuery: there are more names than columns.
        NotSupported: it reads what is before it in a query inside, or in a branch of UNION and its like.
    """
    if len(names) > len(outputs_of(query)):
        raise InvalidQuery(f"'{alias}' has {len(outputs_of(query))} columns, and {len(names)} names are given")
    if not isinstance(query, Block):
        _check_nothing_read(query)
        if names:
            raise NotSupported("names after LATERAL (… UNION …) are not supported", hint="name the columns inside")
        return Applied(query, (), outputs_of(query))
    check_below(query)
    query = (
        replace(
            query,
            outputs=tuple(replace(each, name=name or each.name) for name, each in zip_longest(names, query.outputs)),
        )
        if names
        else query
    )
    places = reads_around(query)
    shown = outputs_of(query)
    if not places:
        return Applied(query, (), shown)
    whole = query.group == () and not query.sets
    if whole and (query.having is not None or query.analytic):
        raise NotSupported("HAVING and OVER over all rows of a subquery that reads the query around it need GROUP BY")
    outside, inside = split(query)
    tables = {table for table, _ in places}
    # Fewer inputs may have more values: what is computed for those joins nothing.
    near = tuple(each for each in froms if each.alias in tables) if len(tables) == 1 else froms
    near = tuple(replace(each, join="inner", on=None) for each in near) if len(near) == 1 else near
    single = len(near) == 1 and near[0].alias in (padded_in(froms) if padded is None else padded)
    found = dependent(inside, outside, places, near, alias, padded=single, every=whole)
    if not whole:
        return Applied(found.block, found.on, shown)
    # NULL among the values has its row of nothing, too.
    on = tuple(exp.NullSafeEQ(this=each.this, expression=each.expression) for each in found.on)
    return Applied(_for_every_value(inside, found), on, shown)


def _for_every_value(block: Block, found: Dependent) -> Block:
    """The groups of an aggregate over all rows, and for a value without a group what it is over no rows."""
    values = next(each for each in found.block.inputs if each.alias == _VALUES)
    assert not isinstance(values.source, Relation)
    names = (name for name, _ in outputs_of(values.source))
    read = {key.name: column(name, _VALUES) for key, name in zip(found.keys, names, strict=True)}
    on = conjoined(
        type(equal)(this=column(key.name, _GROUPS), expression=read[key.name].copy())
        for key, equal in zip(found.keys, found.on, strict=True)
    )
    nothing = column(found.there, _GROUPS)
    outputs = [
        replace(each, expression=over_nothing(block, each, nothing, column(each.name, _GROUPS)))
        for each in block.outputs
    ]
    keys = [Output(key.name, read[key.name].copy(), key.type) for key in found.keys]
    inputs = (From(_VALUES, values.source), From(_GROUPS, found.block, "left", on))
    return Block(inputs, None, (*outputs, *keys))


def _with_nulls(values: Query, outputs: Sequence[Output]) -> SetOperation:
    """The values, and those of a row that an outer join has padded."""
    nulls = [replace(each, expression=exp.Cast(this=exp.Null(), to=data_type(each.type))) for each in outputs]
    return SetOperation("union", (values, Block((), None, tuple(nulls))), outputs_of(values))


def _inside(node: exp.Expression, read: Mapping[Place, exp.Column]) -> exp.Expression:
    def change(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or OUTER not in part.meta:
            return part
        return read[part.table, part.name].copy()

    made = node.copy().transform(change)
    assert isinstance(made, exp.Expression)
    return made


def _with_keys(block: Block, keys: tuple[Output, ...]) -> Block:
    """The block with the keys among its outputs: as groups where it groups, as partitions of its functions OVER."""
    if block.group is not None:
        shown = tuple(replace(key, expression=column(key.name)) for key in keys)
        sets = tuple((*each, *range(len(block.group), len(block.group) + len(keys))) for each in block.sets)
        block = replace(block, group=(*block.group, *keys), sets=sets)
    else:
        shown = keys
    partition = (*block.partition, *(each.expression.copy() for each in shown)) if block.analytic else ()
    return replace(block, outputs=(*block.outputs, *shown), partition=partition, key=(), unseen_key="")


def _never_for_null(terms: Iterable[exp.Expression]) -> set[Place]:
    """The columns of the query around for whose NULL no row can meet the terms."""
    found: set[Place] = set()
    for term in terms:
        bare = term
        while isinstance(bare, exp.Paren):
            bare = bare.this
        calls = (node.name for node in bare.find_all(exp.Anonymous))
        if isinstance(bare, _COMPARED) and not bare.find(*_OF_NULL) and all(name in _STRICT for name in calls):
            found |= {(node.table, node.name) for node in bare.find_all(exp.Column) if OUTER in node.meta}
    return found


def check_below(query: Query) -> None:
    """Check that no query inside this one reads a query around it. Raises NotSupported."""
    for part in query.inputs if isinstance(query, Block) else ():
        if not isinstance(part.source, Relation):
            _check_nothing_read(part.source)


def _check_nothing_read(query: Query) -> None:
    if not isinstance(query, Block):
        for branch in query.branches:
            _check_nothing_read(branch)
        return
    _check_no_further(query, (), 0)
    check_below(query)


def _check_no_further(block: Block, terms: Iterable[exp.Expression], most: int = 1) -> None:
    """Check that a block and terms of it read queries around it that are at most so many levels out."""
    for tree in (*expressions_of(block), *terms):
        far = next((node for node in tree.find_all(exp.Column) if levels_out(node) > most), None)
        if far is not None:
            raise NotSupported(
                f"'{far.name}' is of a query around this one, and cannot be read here: that is not maintained",
                hint="join the subquery in FROM instead",
            )


def split(block: Block) -> tuple[list[exp.Expression], Block]:
    """The conditions of a subquery that read the outer query, and the subquery without them.

    They are those of WHERE, and of ON where all joins are inner: there ON is WHERE.
    """
    outside, where = _apart(block.where)
    inputs = []
    for each in block.inputs:
        if all(other.join == "inner" and not other.frozen for other in block.inputs):
            terms, on = _apart(each.on)
            outside, each = [*outside, *terms], replace(each, on=on)
        inputs.append(each)
    return outside, replace(block, where=where, inputs=tuple(inputs))


def _apart(condition: exp.Expression | None) -> tuple[list[exp.Expression], exp.Expression | None]:
    """Split a condition at its ANDs: the terms that read the outer query, and the rest as one condition."""
    outside = [term for term in conjuncts(condition) if from_outside(term)]
    inside = [term for term in conjuncts(condition) if not from_outside(term)]
    return outside, conjoined(inside) if inside else None


def over_nothing(block: Block, value: Output, key: exp.Expression, shown: exp.Expression) -> exp.Expression:
    """The value, or where nothing matches the aggregate over no rows: 0 for COUNT, no items for ARRAY_AGG, NULL for
    most."""
    calls = {call.name: call for call in block.calls}
    alone = calls.get(value.expression.name) if isinstance(value.expression, exp.Column) else None
    if isinstance(value.expression, exp.Column) and (alone is None or _is_null_over_nothing(alone)):
        return shown

    def empty(node: exp.Expr) -> exp.Expr:
        call = calls.get(node.name) if isinstance(node, exp.Column) else None
        return node if call is None else _over_nothing(call)

    absent = value.expression.copy().transform(empty)
    test = exp.Is(this=key, expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=test, true=absent)], default=shown)


def _is_null_over_nothing(call: AggregateCall) -> bool:
    return function_of(call).over_nothing(call) == "null"


def _over_nothing(aggregate: AggregateCall) -> exp.Expression:
    """The value of an aggregate over no rows."""
    nothing = function_of(aggregate).over_nothing(aggregate)
    made: exp.Expression = exp.Null() if nothing == "null" else exp.Literal.number(0)
    if nothing == "empty":
        parts = [exp.Cast(this=exp.Array(), to=data_type(array(each))) for each in aggregate.type.args]
        made = parts[0] if aggregate.type.base is BaseType.ARRAY else call("AS_MAP", *parts)
    return exp.Cast(this=made, to=data_type(aggregate.type))
