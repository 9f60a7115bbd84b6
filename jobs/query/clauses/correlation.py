"""Decorrelation: the conditions that join a subquery with the outer query, lifted out of its WHERE and ON.

SELECT b FROM t WHERE t.y > 1 AND t.x = s.x         inside a query over s

over one relation, nothing grouped     the relation itself, on __s0.y > 1 AND __s0.x = s.x
anything else                          the subquery with the columns that are needed as `__c0`, …, on …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Output
from strandline.jobs.query.clauses.dependent_joins import dependent, one_source, over_nothing, split
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import OUTER, Inputs, ReadableColumns, expressions_of, from_outside
from strandline.jobs.query.logical import Block, Query, Recursion, SetOperation, grows_by_groups, outputs_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import conjuncts


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
    outside, query = split(query)
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


def grouped(query: Query, alias: str, around: Inputs) -> tuple[Lifted, exp.Expression] | None:
    """Make an input of a correlated aggregate: one row per group, joined on the correlated columns.

    Where a condition is no equality, there is one row for each different value that the subquery reads of the query
    around it (`jobs.query.clauses.dependent_joins`).

    Args:
        around: the inputs of the query around it.

    Returns:
        The input, and its value for an outer row, also where nothing matches; None when nothing correlates.

    Raises:
        NotSupported: it is not an aggregate, or a condition that is no equality is not a comparison with one input.
    """
    outside, inside = split(query) if isinstance(query, Block) else ([], query)
    _check_inside(inside)
    if not outside or not isinstance(inside, Block):
        return None
    query = inside
    if query.group != () or query.having is not None or query.sets or len(query.outputs) != 1:
        raise NotSupported(
            "a subquery that stands for a value is maintained when it is one aggregate",
            hint="(SELECT MAX(x) FROM t WHERE t.k = s.k)",
        )
    if any(_sides(term) is None for term in outside):
        return _for_each_value(query, outside, alias, around)
    scope = ReadableColumns(query)
    keys: list[Output] = []
    on: list[exp.Expression] = []
    for mine, other in filter(None, map(_sides, outside)):
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
    return found, over_nothing(query, value, column(keys[0].name, alias), shown)


def _for_each_value(
    block: Block, terms: Sequence[exp.Expression], alias: str, around: Inputs
) -> tuple[Lifted, exp.Expression]:
    places = list(
        dict.fromkeys((n.table, n.name) for term in terms for n in term.find_all(exp.Column) if OUTER in n.meta)
    )
    found = dependent(block, terms, places, one_source(places, around), alias)
    if not found.total:
        raise NotSupported(
            f"a subquery that stands for a value is joined by comparisons: {' AND '.join(map(sql_of, terms))}",
            hint="WHERE inner.x < outer.y",
        )
    (value,) = block.outputs
    shown = column(value.name, alias)
    made = Lifted(alias, found.block, found.on, (Typed(shown, value.type),))
    return made, over_nothing(block, value, column(found.keys[0].name, alias), shown)


def _has_more(block: Block) -> bool:
    """True if the block is more than a filter and a projection (DISTINCT makes no difference to IN and EXISTS)."""
    return block.group is not None or bool(block.analytic or block.expand)


def _check_inside(query: Query) -> None:
    """Check that nothing at any depth reads the outer query: its columns are not in reach of an inner stage."""
    if isinstance(query, SetOperation | Recursion):
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


def _sides(term: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
    """The subquery's side of an equality, and the outer query's; None for any other condition."""
    while isinstance(term, exp.Paren):
        term = term.this
    if isinstance(term, exp.EQ):
        for mine, other in ((term.this, term.expression), (term.expression, term.this)):
            only_outer = all(OUTER in node.meta for node in other.find_all(exp.Column))
            if not from_outside(mine) and mine.find(exp.Column) is not None and only_outer:
                return mine, other
    return None


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
