"""Decorrelation: the conditions that join a subquery with the outer query, lifted out of its WHERE and ON.

SELECT b FROM t WHERE t.y > 1 AND t.x = s.x         inside a query over s

over one relation, nothing grouped     the relation itself, on __s0.y > 1 AND __s0.x = s.x
anything else                          the subquery with the columns that are needed as `__c0`, …, on …
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.dependent_joins import (
    applied,
    check_below,
    dependent,
    one_source,
    over_nothing,
    reads_around,
    split,
)
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import (
    OUTER,
    Inputs,
    ReadableColumns,
    expressions_of,
    from_outside,
    levels_out,
    one_level_out,
)
from strandline.jobs.query.logical import Block, From, Query, Recursion, SetOperation, grows_by_groups, outputs_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import Place, conjuncts


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


def lifted(query: Query, alias: str, around: Inputs, padded: Collection[str]) -> Lifted:
    """Make an input of a subquery, under a new alias, with the conditions that join it with the outer query.

    Where it reads that anywhere but between the ANDs of its WHERE, or of ON of inner joins, and where it groups, it is
    computed for each different value that it reads (`jobs.query.clauses.dependent_joins`).

    Args:
        padded: the inputs around it whose columns are NULL where an outer join finds nothing.

    Raises:
        NotSupported: what it reads there is of several inputs, or a query inside of it reads the query around.
    """
    if not isinstance(query, Block):
        _check_inside(query)
        return Lifted(alias, query, (), tuple(Typed(column(name, alias), sql_type) for name, sql_type in query.outputs))
    outside, inside = split(_joined_with_what_reads_far(query))
    check_below(query)
    first = inside.inputs[0] if len(inside.inputs) == 1 else None
    once = inside.distinct and inside.group is None and not inside.analytic
    if reads_around(inside) or (outside and grows_by_groups(inside) and not once):
        return _computed_for_each(query, alias, around, padded)
    if first is not None and isinstance(first.source, Relation) and not _has_more(inside):
        renamed = [_renamed(term, first.alias, alias) for term in (*conjuncts(inside.where), *outside)]
        outputs = tuple(Typed(_renamed(o.expression, first.alias, alias), o.type) for o in inside.outputs)
        return Lifted(alias, first.source, tuple(renamed), outputs)
    shown = tuple(Typed(column(name, alias), sql_type) for name, sql_type in outputs_of(inside))
    if not outside:
        return Lifted(alias, inside, (), shown)
    names = _Projection(inside, alias)
    on = tuple(one_level_out(names.lift(term)) for term in outside)
    made = replace(inside, outputs=(*inside.outputs, *names.outputs), distinct=False, key=())
    return Lifted(alias, made, on, shown)


def _joined_with_what_reads_far(block: Block) -> Block:
    """A subquery after IN or EXISTS, where it does not matter how often a row is there, with joins in the place of its
    own IN and EXISTS that read a query further out: so that their conditions can be lifted out."""
    if grows_by_groups(block):
        return block

    def joined(each: From) -> From:
        far = each.join == "semi" and each.on is not None and not _is_near(each.on)
        return replace(each, join="inner") if far else each

    return replace(block, inputs=tuple(map(joined, block.inputs)))


def _computed_for_each(query: Block, alias: str, around: Inputs, padded: Collection[str]) -> Lifted:
    made = applied(query, (), one_source(reads_around(query), around), alias, padded)
    shown = tuple(Typed(column(name, alias), sql_type) for name, sql_type in made.columns)
    return Lifted(alias, made.query, made.on, shown)


def raised(query: Query, alias: str, around: Inputs, padded: Collection[str]) -> Lifted | None:
    """Make a query in FROM of a subquery, which reads the query around that, one that reads nothing; None where it
    does so already. The conditions that join it with the query around are those of the subquery it stands in.

    EXISTS (SELECT 1 FROM (SELECT x FROM u WHERE u.k = t.k) AS q WHERE q.x > 1)
    EXISTS (SELECT 1 FROM (SELECT x, u.k AS __c0 FROM u) AS q WHERE q.x > 1 AND q.__c0 = t.k)

    Raises:
        NotSupported: as `lifted`.
    """
    if not isinstance(query, Block):
        _check_inside(query)
        return None
    outside, inside = split(query)
    check_below(query)
    if not outside and not reads_around(inside):
        return None
    shown = tuple(Typed(column(name, alias), sql_type) for name, sql_type in outputs_of(inside))
    if reads_around(inside) or grows_by_groups(inside):
        made = _computed_for_each(query, alias, around, padded)
        return replace(made, on=tuple(_marked(term, alias) for term in made.on))
    names = _Projection(inside, alias)
    on = tuple(names.lift(term) for term in outside)
    return Lifted(alias, replace(inside, outputs=(*inside.outputs, *names.outputs), key=()), on, shown)


def _marked(term: exp.Expression, alias: str) -> exp.Expression:
    """A condition whose columns but those of `alias` are the query around's."""
    made = term.copy()
    for each in made.find_all(exp.Column):
        if each.table != alias:
            each.meta[OUTER] = 1
    return made


def grouped(query: Query, alias: str, around: Inputs, padded: Collection[str]) -> tuple[Lifted, exp.Expression] | None:
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
    if not isinstance(query, Block):
        _check_inside(query)
        return None
    places = reads_around(query)
    outside, query = split(query)
    check_below(query)
    if not outside and not places:
        return None
    if query.group != () or query.having is not None or query.sets or len(query.outputs) != 1:
        raise NotSupported(
            "a subquery that stands for a value is maintained when it is one aggregate",
            hint="(SELECT MAX(x) FROM t WHERE t.k = s.k)",
        )
    if reads_around(query) or any(_sides(term) is None for term in outside):
        return _for_each_value(query, outside, places, alias, one_source(places, around), padded)
    made, on = _by_keys(query, outside, alias)
    (value,) = query.outputs
    shown = column(value.name, alias)
    found = Lifted(alias, made, tuple(on), (Typed(shown, value.type),))
    return found, over_nothing(query, value, column(made.outputs[0].name, alias), shown)


def _by_keys(block: Block, terms: Sequence[exp.Expression], alias: str) -> tuple[Block, list[exp.Expression]]:
    """A block of one group as one with a group for each value that equalities look for, and those over its outputs."""
    scope = ReadableColumns(block)
    keys: list[Output] = []
    on: list[exp.Expression] = []
    for mine, other in filter(None, map(_sides, terms)):
        key = Output(f"__c{len(keys)}", mine, infer(mine, scope).type)
        keys.append(key)
        on.append(exp.EQ(this=column(key.name, alias), expression=one_level_out(other)))
    outputs = (*(replace(key, expression=column(key.name)) for key in keys), *block.outputs)
    return replace(block, group=tuple(keys), outputs=outputs, key=()), on


def _for_each_value(
    block: Block,
    terms: Sequence[exp.Expression],
    places: Sequence[Place],
    alias: str,
    source: tuple[From, ...],
    padded: Collection[str],
) -> tuple[Lifted, exp.Expression]:
    (value,) = block.outputs
    shown = column(value.name, alias)
    # What an equality reads further out need not be among the values: by it the row of its group is found.
    far = [term for term in terms if not _is_near(term) and _sides(term) is not None]
    keyed, on = _by_keys(block, far, alias)
    near = [term for term in terms if not any(term is each for each in far)]
    found = dependent(keyed, near, places, source, alias, padded=source[0].alias in padded)
    made = Lifted(alias, found.block, (*found.on, *on), (Typed(shown, value.type),))
    return made, over_nothing(block, value, column(found.there, alias), shown)


def _is_near(term: exp.Expression) -> bool:
    """True if a condition reads no query further out than the one around."""
    return all(levels_out(each) <= 1 for each in term.find_all(exp.Column))


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
            return node.copy()
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
            return one_level_out(each)
        return column(each.name, new) if each.table == old else each

    made = node.copy().transform(rename)
    assert isinstance(made, exp.Expression)
    return made
