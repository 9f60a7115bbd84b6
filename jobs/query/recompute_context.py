"""The context of a recomputation: its engine and semantics, the text of expressions, and what becomes of failed rows.

Rows that fail are left out, an error, or NULL, by the definition that views have of them.
A subquery that is one with the query around it (`is_read_through`) is *open*: its text gives beside
each output that can fail the condition that it does, and keeps a row on which its own WHERE fails, marked. So the query
around it knows of the rows below it what a view knows, which computes both at once.

    SELECT x FROM (SELECT 10 / n AS x, id FROM s) q WHERE id > 5
    -> … FROM (SELECT …, COALESCE(n = 0 …) AS "x!" …) AS "q" WHERE "q"."id" > 5 AND NOT "q"."x!"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.failing import FAILS, failing, lenient, strict
from strandline.jobs.functions.failing_rows import JoinCheck, Needed, RowCheck, join_check, row_check, truth
from strandline.jobs.functions.faults import faults_in, of_faults
from strandline.jobs.functions.render import lower
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical import Block, From, Query, SetOperation, mapped, outputs_of
from strandline.jobs.sql.dialect import NestedQuery, OuterValue
from strandline.jobs.sql.trees import Place, all_of, columns_in, replaced

Fate = Literal["left out", "null", "error"]
"""What becomes of a row on which an expression fails: it is not in the result; the expression is NULL; an error."""

FrozenJoin = Callable[[str, str], str]
"""(alias of the events, alias of the frozen input) -> the condition that a row existed when the event arrived."""


@dataclass(frozen=True)
class Recomputation:
    """The engine and the semantics that a text is written for.

    Attributes:
        subquery: the text of a query inside the query; its second argument are meta columns wanted beside the outputs,
            its third says that what fails in it is left to the query around it.
        fate: of the rows that fail.
        shared: joins are read from tables of their own, as with STATE = 'shared'.
        joins_first: an error is asked for of joined rows alone, whatever it reads of them: see `recompute_sql`.
        nested: the queries inside expressions, by the names of their nodes: a pull query has such.
    """

    engine: Engine
    semantics: Semantics
    frozen: FrozenJoin | None
    subquery: Callable[[Query, Recomputation, tuple[str, ...], bool], str]
    fate: Fate
    shared: bool = False
    joins_first: bool = False
    nested: Mapping[str, Query] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Write an identifier."""
        return self.engine.name(name)

    def inside(self, expression: exp.Expression) -> str:
        """Write an expression within FROM and WHERE, where inputs still have their aliases; NULL if it fails."""
        return self.total(lenient(expression))

    def after(self, expression: exp.Expression) -> str:
        """Write an expression of a later clause, where `alias.column` is one name; NULL if it fails."""
        return self.total_after(lenient(expression))

    def total(self, expression: exp.Expression) -> str:
        """Write an expression within FROM and WHERE that may fail the query."""
        return lower(self._with_queries(expression, self.inside), self.engine.dialect)

    def total_after(self, expression: exp.Expression) -> str:
        """Write an expression of a later clause that may fail the query."""
        holder = exp.Paren(this=self._with_queries(expression, self.after).copy())
        for node in list(holder.find_all(exp.Column)):
            if node.table:
                node.replace(exp.column(flat(node.table, node.name), quoted=True))
        return lower(holder.this, self.engine.dialect)

    def _with_queries(self, expression: exp.Expression, text: Callable[[exp.Expression], str]) -> exp.Expression:
        """The expression with the text of each query inside it; `text` writes what such a query reads of the row."""
        if not self.nested:
            return expression

        def written(node: exp.Expr) -> exp.Expr:
            if isinstance(node, OuterValue):
                return exp.Var(this=f"{self.name(node.name)}.{self.name(node.place)}")
            return exp.Var(this=self._query_text(node, text)) if isinstance(node, NestedQuery) else node

        made = _outside_lambdas(expression).transform(written)
        assert isinstance(made, exp.Expression)
        return made

    def _query_text(self, node: NestedQuery, text: Callable[[exp.Expression], str]) -> str:
        """A query inside an expression.

        What it reads of the row around it comes in as a relation of one row, so that no name inside can hide it.
        """
        query = self.nested[node.name]
        source = f"{self.source(query)} AS __inner"
        if node.expressions:
            row = ", ".join(f"{text(value)} AS {self.name(str(place))}" for place, value in enumerate(node.expressions))
            source = f"(SELECT {row}) AS {self.name(node.name)}, LATERAL {source}"
        if node.form == "exists":
            return f"EXISTS (SELECT 1 FROM {source})"
        (column, _), *_ = outputs_of(query)
        found = f"(SELECT __inner.{self.name(column)} FROM {source})"
        return found if node.form == "value" else f"({text(node.args['member'])} IN {found})"

    def source(self, source: Relation | Query, more: tuple[str, ...] = (), *, is_open: bool = False) -> str:
        """Write a source in FROM: a relation's name, or a query in parentheses with those meta columns.

        Args:
            is_open: what fails in the query is left to the query around it.
        """
        if isinstance(source, Relation):
            return self.name(source.name)
        return f"({self.subquery(source, self, more, is_open)})"

    def value(self, output: Output, *, whole: bool = False) -> str:
        """Write an output of a later clause, as exactly its type, under its name.

        Args:
            whole: it is computed of a group, or of a window's result; then no row fails by it, but the whole does.
        """
        tree = strict(output.expression) if whole and self.fate != "null" else lenient(output.expression)
        return f"{self.engine.cast(self.total_after(tree), output.type)} AS {self.name(output.name)}"

    def whole(self, value: str, sql_type: SqlType) -> str:
        """Write a value computed of many rows, as exactly its type; beyond its range NULL or an error."""
        return (self.engine.cast_or_null if self.fate == "null" else self.engine.cast)(value, sql_type)

    def millis(self, expression: exp.Expression) -> str:
        """Write a TIMESTAMP of a later clause as milliseconds since the epoch."""
        return self.after(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[expression.copy()]))


def flat(alias: str, column: str) -> str:
    """Name of an input's column in the clauses after FROM."""
    return f"{alias}.{column}"


# DuckDB binds no subquery inside a lambda function. One there reads nothing of an item: it is the same for all of them.
#
#     TRANSFORM(a, x => x + (SELECT …))
#     TRANSFORM(ARRAY[STRUCT(q0 := (SELECT …))], __q => TRANSFORM(a, x => x + __q.q0))[1]


def _outside_lambdas(expression: exp.Expression) -> exp.Expression:
    """The expression with the queries that stand in its lambda functions before the outermost of these."""
    made = exp.Paren(this=expression.copy())
    while (around := next(filter(None, map(_outermost_lambda, made.find_all(NestedQuery))), None)) is not None:
        function = around.parent
        assert function is not None
        inside, item = function.copy(), exp.to_identifier("__q")
        values = list(dict.fromkeys(each.copy() for each in inside.find_all(NestedQuery)))
        for node in list(inside.find_all(NestedQuery)):
            node.replace(exp.Dot(this=item.copy(), expression=exp.to_identifier(f"q{values.index(node)}")))
        fields = [exp.PropertyEQ(this=exp.to_identifier(f"q{n}"), expression=each) for n, each in enumerate(values)]
        one = exp.Array(expressions=[exp.Anonymous(this="STRUCT", expressions=fields)])
        applied = exp.Anonymous(this="TRANSFORM", expressions=[one, exp.Lambda(this=inside, expressions=[item])])
        function.replace(exp.Bracket(this=applied, expressions=[exp.Literal.number(1)]))
    inner: exp.Expression = made.this
    return inner


def _outermost_lambda(node: exp.Expr) -> exp.Lambda | None:
    found, inner = None, node.find_ancestor(exp.Lambda)
    while inner is not None:
        found, inner = inner, inner.find_ancestor(exp.Lambda)
    return found


Change = Callable[[exp.Expression], exp.Expression]

ROW_FAILS = ""
"""Stands for the whole row among the names of outputs that can fail."""


def flag(name: str) -> str:
    """Name of the column of an open subquery that is TRUE if an output, or the row itself, fails."""
    return f"{name}!"


def cause(name: str) -> str:
    """Name of the column beside it that says by what it fails."""
    return f"{name}?"


def _cause(name: str, part: From) -> exp.Column:
    return exp.column(cause(name), table=part.alias, quoted=True)


def is_open(block: Block, place: int, recompute: Recomputation) -> bool:
    """True if the block decides what happens to rows that fail in the subquery at that place."""
    return recompute.fate != "null" and is_read_through(block, place, shared=recompute.shared)


def marked(block: Block, recompute: Recomputation) -> Block:
    """Mark each column of an open subquery that can fail."""
    values: dict[Place, exp.Expression] = {}
    for place, part in enumerate(block.inputs):
        if not isinstance(part.source, Relation) and is_open(block, place, recompute):
            found = unsure(part.source, recompute)
            for name in found.keys() - {ROW_FAILS}:
                column = exp.column(name, table=part.alias, quoted=True)
                fails = exp.column(flag(name), table=part.alias, quoted=True)
                column.meta[FAILS] = of_faults(fails, found[name], _cause(name, part))
                values[(part.alias, name)] = column
    return mapped(block, lambda node: replaced(node, values)) if values else block


def unsure(query: Query, recompute: Recomputation) -> dict[str, set[RowFault]]:
    """Outputs of an open query that can fail, and by what; ROW_FAILS if a row can fail before they are computed."""
    if isinstance(query, SetOperation):
        found: dict[str, set[RowFault]] = {}
        for branch in query.branches:
            own = {name: mine for (mine, _), (name, _) in zip(query.outputs, outputs_of(branch), strict=True)}
            for name, faults in unsure(branch, recompute).items():
                found.setdefault(own.get(name, name), set()).update(faults)
        return found
    if not isinstance(query, Block) or not is_plain(query):
        return {}
    block = marked(query, recompute)
    flags = flags_of(block, check_of(block, recompute, ()))
    return {name: set(faults_in(fails)) for name, fails in flags.items()}


def flags_of(block: Block, check: RowCheck) -> dict[str, exp.Expression]:
    """Flags of an open, marked block, by the names of its outputs."""
    found = {each.name: fails for each in block.outputs if (fails := failing(each.expression)) is not None}
    if check.undecided is not None:
        found[ROW_FAILS] = check.undecided
    return found


def check_of(block: Block, recompute: Recomputation, needed: Sequence[Needed]) -> RowCheck:
    """Check of the joined rows of a marked block."""
    joins = [_join_check(block, place, recompute) for place in range(len(block.inputs))]
    return row_check(block.where, needed, joins)


def needed_of(block: Block) -> Iterator[Needed]:
    """Expressions that a block computes of each joined row that its WHERE lets through."""
    if block.group is not None or block.calls:
        yield from (Needed(each.expression) for each in block.group or ())
        for call in block.calls:
            yield from (Needed(argument, call.filter) for argument in call.arguments)
            if call.filter is not None and not call.arguments:
                yield Needed(call.filter)
    elif block.analytic:
        yield from needed_of_windows(block)
        trees = [*(each.expression for each in block.outputs), *([block.qualify] if block.qualify is not None else [])]
        yield from (Needed(column) for tree in trees for column in columns_in(tree))
    else:
        yield from (Needed(each.expression) for each in block.outputs)
        yield from (Needed(each) for each in block.partition_by)


def needed_of_windows(block: Block) -> Iterator[Needed]:
    """Expressions that the functions OVER windows compute of each row, and those that stand beside them."""
    yield from (Needed(each.expression) for each in block.before_windows)
    yield from (Needed(each) for each in block.partition)
    for call in block.analytic:
        yield from (Needed(each) for each in (*call.arguments, *(by for by, _, _ in call.order)))


def check_of_groups(block: Block) -> RowCheck | None:
    """Check of the groups of a block, each of which is a row for later clauses; None if none can fail.

    A view has the groups in a table of their own when something chooses among them.
    """
    final = block.window is not None and block.window.final
    totals = block.window is None and any(not each for each in block.sets)
    if block.analytic:
        return row_check(block.having, needed_of_windows(block))
    if block.having is None and not final and not totals:
        return None
    return row_check(block.having, (Needed(each.expression) for each in block.outputs))


def condition(check: RowCheck, recompute: Recomputation, read: Sequence[exp.Expression] = ()) -> exp.Expression | None:
    """Condition of the rows in the result, or an error on those that fail."""
    match recompute.fate:
        case "null":
            return check.lenient
        case "left out":
            return check.sound
        case "error":
            return check.checked(read)


def passed_on(check: RowCheck) -> exp.Expression | None:
    """Condition of the rows that an open query gives: those that stay, and those that fail."""
    undecided = check.undecided
    if undecided is None:
        return check.lenient
    return all_of(*check.sure, exp.Or(this=truth(replace(check, sure=()).lenient), expression=undecided))


def _join_check(block: Block, place: int, recompute: Recomputation) -> JoinCheck:
    """The check of a join, in which a row fails on which the WHERE of an open subquery does."""
    part = block.inputs[place]
    found = join_check(part.alias, part.join, part.on)
    if isinstance(part.source, Relation) or not is_open(block, place, recompute):
        return found
    rows_fail = unsure(part.source, recompute).get(ROW_FAILS)
    if rows_fail is None:
        return found
    wrong: exp.Expression = exp.column(flag(ROW_FAILS), table=part.alias, quoted=True)
    wrong = of_faults(wrong, rows_fail, _cause(ROW_FAILS, part))
    if part.join in ("semi", "anti"):
        alone = exp.Not(this=truth(wrong))
        return replace(found, on=all_of(found.on, alone), lenient=all_of(found.lenient, alone))
    # Behind the other terms of ON, and a pair on which one of these fails has failed already.
    failed = truth(wrong) if place == 0 else truth(all_of(found.on, wrong))
    pairs = failed if found.pairs is None else exp.Or(this=found.pairs, expression=failed)
    return replace(found, pairs=exp.Paren(this=pairs))


# The subqueries that are one with the query around them: what they compute, it computes of the rows that they read.
#
#     SELECT x FROM (SELECT id, 10 / n AS x FROM s WHERE n > 0) WHERE id > 5       one row of s decides both
#     SELECT x FROM (SELECT DISTINCT 10 / n AS x FROM s) WHERE x > 5               the inner rows stand by themselves
#
# Of the first, an expression that nobody reads does not fail, nor one of a row that the outer WHERE leaves out. Of
# the second the subquery's rows are complete before the outer query begins; those that fail in it are its own.


def is_read_through(block: Block, place: int, *, shared: bool) -> bool:
    """True if the subquery at that place is one with the block.

    Args:
        shared: joins have tables of their own, as with STATE = 'shared'.
    """
    source = block.inputs[place].source
    if isinstance(source, Relation):
        return False
    later = block.inputs[place + 1 :]
    if place == 0:
        return _first(source, later, shared)
    return _joined(block.inputs[place], source, later, shared)


def is_plain(query: Query) -> bool:
    """True if the query only joins, filters, projects and explodes."""
    return isinstance(query, Block) and query.group is None and not query.analytic and not query.distinct


def _first(source: Query, others: Sequence[From], shared: bool) -> bool:
    if not (is_plain(source) or (isinstance(source, SetOperation) and source.operation == "union all")):
        return False
    branches = _branches(source)
    if any(isinstance(each, Block) and is_plain(each) and each.expand for each in branches):
        return False
    if others and (isinstance(source, SetOperation) or _sets_of_rows(source, shared) > 1):
        return False
    padded = any(each.join in ("right", "full") for each in others)
    return not padded or all(isinstance(each, Block) and _is_bare(each, shared) for each in branches)


def _joined(part: From, source: Query, later: Sequence[From], shared: bool) -> bool:
    if not isinstance(source, Block) or not is_plain(source) or source.expand:
        return False
    if _sets_of_rows(source, shared) != 1 or _number_of_inputs(source, shared) != 1:
        return False
    if part.join in ("right", "full") and _filters(source, shared):
        return False
    padded = part.join in ("left", "full") or any(each.join in ("right", "full") for each in later)
    return not padded or _gives_columns(source, shared)


def _branches(query: Query) -> list[Query]:
    if isinstance(query, SetOperation) and query.operation == "union all":
        return [each for branch in query.branches for each in _branches(branch)]
    return [query]


def _sets_of_rows(query: Query, shared: bool) -> int:
    """The branches of UNION ALL that a query is read as."""
    if isinstance(query, SetOperation) and query.operation == "union all":
        return sum(_sets_of_rows(branch, shared) for branch in query.branches)
    if isinstance(query, Block) and is_plain(query) and query.inputs and is_read_through(query, 0, shared=shared):
        source = query.inputs[0].source
        assert not isinstance(source, Relation)
        return _sets_of_rows(source, shared)
    return 1


def _number_of_inputs(block: Block, shared: bool) -> int:
    """The relations that the rows of a plain block are joined from."""
    if not block.inputs:
        return 0
    first = 1
    if is_read_through(block, 0, shared=shared):
        source = block.inputs[0].source
        first = _number_of_inputs(source, shared) if isinstance(source, Block) and is_plain(source) else 1
    number = first + len(block.inputs) - 1
    return min(number, 1) if shared else number


def _filters(block: Block, shared: bool) -> bool:
    """True if a plain block has a WHERE, or a subquery that is one with it has."""
    if block.where is not None:
        return True
    if not block.inputs or not is_read_through(block, 0, shared=shared):
        return False
    source = block.inputs[0].source
    return isinstance(source, Block) and is_plain(source) and _filters(source, shared)


def _gives_columns(block: Block, shared: bool) -> bool:
    """True if every output of a plain block is a column of a relation or of a subquery with a table of its own."""
    return all(_is_column(output.expression, block, shared) for output in block.outputs)


def _is_bare(query: Query, shared: bool) -> bool:
    """True if a query gives columns as they are, and all rows."""
    if not isinstance(query, Block) or not is_plain(query):
        return True
    return not _filters(query, shared) and _gives_columns(query, shared)


def _is_column(node: exp.Expression, block: Block, shared: bool) -> bool:
    if not isinstance(node, exp.Column):
        return False
    place = next((place for place, each in enumerate(block.inputs) if each.alias == node.table), None)
    if place is None or not is_read_through(block, place, shared=shared):
        return True
    source = block.inputs[place].source
    if not isinstance(source, Block) or not is_plain(source):
        return True
    output = next((each for each in source.outputs if each.name == node.name), None)
    return output is None or _is_column(output.expression, source, shared)
