"""Decorrelation: the conditions that join a subquery with the outer query, lifted out of its WHERE and ON.

SELECT b FROM t WHERE t.y > 1 AND t.x = s.x         inside a query over s

over one relation, nothing grouped     the relation itself, on __s0.y > 1 AND __s0.x = s.x
anything else                          the subquery with the columns that are needed as `__c0`, …, on …
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import BIGINT, SqlType
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import OUTER, ReadableColumns, conjoined, expressions_of, from_outside
from strandline.jobs.query.logical import Block, Query, SetOperation, grows_by_groups, outputs_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import conjuncts
from strandline.jobs.sql.types_text import data_type

_COUNTS = ("COUNT", "COUNT_DISTINCT")


@dataclass(frozen=True)
class Lifted:
    """A subquery as an input of the outer query.

    Attributes:
        on: the conditions by which it joins, over the columns of both.
        outputs: its outputs, as expressions over its columns.
    """

    alias: str
    source: Relation | Query
    on: tuple[exp.Expression, ...]
    outputs: tuple[Typed, ...]


def lifted(query: Query, alias: str) -> Lifted:
    """Make an input of a subquery, under a new alias, with the conditions that join it with the outer query.

    Raises:
        NotSupported: such a condition stands anywhere but between the ANDs of its WHERE, or of ON of inner joins.
    """
    if not isinstance(query, Block):
        _check_inside(query)
        return Lifted(alias, query, (), tuple(Typed(column(name, alias), sql_type) for name, sql_type in query.outputs))
    outside, query = _split(query)
    _check_inside(query)
    first = query.inputs[0] if len(query.inputs) == 1 else None
    if first is not None and isinstance(first.source, Relation) and not _has_more(query):
        renamed = [_renamed(term, first.alias, alias) for term in (*conjuncts(query.where), *outside)]
        outputs = tuple(Typed(_renamed(o.expression, first.alias, alias), o.type) for o in query.outputs)
        return Lifted(alias, first.source, tuple(renamed), outputs)
    shown = tuple(Typed(column(name, alias), sql_type) for name, sql_type in outputs_of(query))
    if not outside:
        return Lifted(alias, query, (), shown)
    if grows_by_groups(query) and not (query.distinct and query.group is None and not query.analytic):
        raise NotSupported("a grouped subquery that reads the query around it is not maintained yet")
    names = _Projection(query, alias)
    on = tuple(names.lift(term) for term in outside)
    made = replace(query, outputs=(*query.outputs, *names.outputs), distinct=False, key=())
    return Lifted(alias, made, on, shown)


def grouped(query: Query, alias: str) -> tuple[Lifted, exp.Expression] | None:
    """Make an input of a correlated aggregate: one row per group, joined on the correlated columns.

    Returns:
        The input, and its value for an outer row, also where nothing matches; None when nothing correlates.

    Raises:
        NotSupported: it is not an aggregate, or the conditions are not equalities.
    """
    outside, inside = _split(query) if isinstance(query, Block) else ([], query)
    _check_inside(inside)
    if not outside or not isinstance(inside, Block):
        return None
    query = inside
    if query.group != () or query.having is not None or query.sets or len(query.outputs) != 1:
        raise NotSupported(
            "a subquery that stands for a value is maintained when it is one aggregate",
            hint="(SELECT MAX(x) FROM t WHERE t.k = s.k)",
        )
    scope = ReadableColumns(query)
    keys: list[Output] = []
    on: list[exp.Expression] = []
    for term in outside:
        mine, other = _sides(term)
        key = Output(f"__c{len(keys)}", mine, infer(mine, scope).type)
        keys.append(key)
        on.append(exp.EQ(this=column(key.name, alias), expression=_unmarked(other)))
    made = replace(
        query,
        group=tuple(keys),
        outputs=(*(replace(key, expression=column(key.name)) for key in keys), *query.outputs),
        key=(),
    )
    (value,) = query.outputs
    shown = column(value.name, alias)
    found = Lifted(alias, made, tuple(on), (Typed(shown, value.type),))
    return found, _over_nothing(query, value, column(keys[0].name, alias), shown)


def _split(block: Block) -> tuple[list[exp.Expression], Block]:
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


def _has_more(block: Block) -> bool:
    """True if the block is more than a filter and a projection (DISTINCT makes no difference to IN and EXISTS)."""
    return block.group is not None or bool(block.analytic or block.expand)


def _check_inside(query: Query) -> None:
    """Check that nothing at any depth reads the outer query: its columns are not in reach of an inner stage."""
    if isinstance(query, SetOperation):
        for branch in query.branches:
            _check_inside(branch)
        return
    for node in expressions_of(query):
        if from_outside(node):
            raise NotSupported(
                f"a subquery reads the query around it only between the ANDs of its WHERE: {sql_of(node)}",
                hint="or join it in FROM",
            )
    for part in query.inputs:
        if not isinstance(part.source, Relation):
            _check_inside(part.source)


class _Projection:
    """The expressions of a subquery that its join needs, each as an output of its own."""

    def __init__(self, block: Block, alias: str) -> None:
        self._scope = ReadableColumns(block)
        self._alias = alias
        self._outputs: dict[str, Output] = {}

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(self._outputs.values())

    def lift(self, node: exp.Expression) -> exp.Expression:
        """A condition of the subquery, over its new outputs and the columns of the outer query."""
        if isinstance(node, exp.Column) and OUTER in node.meta:
            return _unmarked(node)
        if not from_outside(node):
            return self._output(node) if node.find(exp.Column) is not None else node.copy()
        made = node.copy()
        for child in list(made.iter_expressions()):
            if isinstance(child, exp.Expression) and not isinstance(child, exp.Identifier | exp.DataType):
                child.replace(self.lift(child))
        return made

    def _output(self, node: exp.Expression) -> exp.Expression:
        text = sql_of(node)
        if text not in self._outputs:
            self._outputs[text] = Output(f"__c{len(self._outputs)}", node.copy(), infer(node, self._scope).type)
        return column(self._outputs[text].name, self._alias)


def _sides(term: exp.Expression) -> tuple[exp.Expression, exp.Expression]:
    """The subquery's side of an equality, and the outer query's."""
    while isinstance(term, exp.Paren):
        term = term.this
    if isinstance(term, exp.EQ):
        for mine, other in ((term.this, term.expression), (term.expression, term.this)):
            only_outer = all(OUTER in node.meta for node in other.find_all(exp.Column))
            if not from_outside(mine) and mine.find(exp.Column) is not None and only_outer:
                return mine, other
    raise NotSupported(
        f"a subquery that stands for a value is joined by equalities: {sql_of(term)}", hint="WHERE inner.x = outer.y"
    )


def _over_nothing(block: Block, value: Output, key: exp.Expression, shown: exp.Expression) -> exp.Expression:
    """The value, or where nothing matches the aggregate over no rows: 0 for COUNT, NULL for most."""
    counts = {call.name: call.function in _COUNTS for call in block.calls}
    if isinstance(value.expression, exp.Column) and not counts.get(value.expression.name, False):
        return shown
    types = {call.name: call.type for call in block.calls}

    def empty(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.name not in types:
            return node
        made: exp.Expression = exp.Literal.number(0) if counts[node.name] else exp.Null()
        sql_type: SqlType = BIGINT if counts[node.name] else types[node.name]
        return exp.Cast(this=made, to=data_type(sql_type))

    absent = value.expression.copy().transform(empty)
    test = exp.Is(this=key, expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=test, true=absent)], default=shown)


def _renamed(node: exp.Expression, old: str, new: str) -> exp.Expression:
    """An expression with one input under another alias, and the columns of the outer query unmarked."""

    def rename(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column):
            return each
        if OUTER in each.meta:
            return _unmarked(each)
        return column(each.name, new) if each.table == old else each

    made = node.copy().transform(rename)
    assert isinstance(made, exp.Expression)
    return made


def _unmarked(node: exp.Expression) -> exp.Expression:
    made = node.copy()
    for each in made.find_all(exp.Column):
        each.meta.pop(OUTER, None)
    return made
