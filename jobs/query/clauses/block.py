"""One SELECT, read clause by clause in the order in which SQL evaluates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.query.clauses.aggregate_calls import Calls
from strandline.jobs.query.clauses.composed_aggregates import composed
from strandline.jobs.query.clauses.from_clause import Context, read_from
from strandline.jobs.query.clauses.grouping import (
    DEFAULT_GRACE,
    after_groups,
    grouping_call,
    named_groups,
    over_groups,
    over_marks,
    read_groups,
    read_window,
)
from strandline.jobs.query.clauses.joins import Joins, with_subqueries_in_where, without_unread
from strandline.jobs.query.clauses.ksql import check_select, ksql_block
from strandline.jobs.query.clauses.over import AnalyticCalls
from strandline.jobs.query.clauses.over_windows import partitions_apart
from strandline.jobs.query.clauses.record_key import with_key
from strandline.jobs.query.clauses.select_list import Naming, TableFunctions, read_outputs
from strandline.jobs.query.clauses.subqueries import Subqueries
from strandline.jobs.query.desugar import grouped_items
from strandline.jobs.query.expressions.infer import condition, infer
from strandline.jobs.query.expressions.nested import TABLE_FUNCTIONS
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.inputs import aliases, conjoined
from strandline.jobs.query.logical import Block, From, OrderItem
from strandline.jobs.query.pulled import order_items, read_order
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.size import PULL, VIEW, check_parts
from strandline.jobs.sql.trees import is_parameter


def read_block(select: exp.Select, context: Context) -> Block:
    """Resolve one SELECT into a block; `context` holds its common table expressions already.

    Raises:
        SqlError: with line and column where they are known.
    """
    check_clauses(select)
    if not context.pulls:
        select = _without_order(select, context)
    return _Reader(select, context).block()


def read_in_order(
    select: exp.Select, context: Context, items: Sequence[exp.Expr]
) -> tuple[Block, int, tuple[OrderItem, ...]]:
    """Read the SELECT of a pull query: its block, the number of columns that are shown, and its order.

    What ORDER BY alone reads stands behind the columns that are shown.

    Raises:
        SqlError: with line and column where they are known.
    """
    check_clauses(select)
    reader = _Reader(select, context)
    return reader.block(items), reader.shown, reader.order


def _check_names(order: Sequence[exp.Expr], select: exp.Select, outputs: Sequence[Output]) -> None:
    """Check that a name in ORDER BY does not stand for two different values of the SELECT list.

    Raises:
        InvalidQuery: it does.
    """
    names = [item.alias_or_name for item in select.expressions]
    for node in (item.this for item in order) if len(names) == len(outputs) else ():
        if isinstance(node, exp.Column) and not node.table:
            meant = {sql_of(each.expression) for name, each in zip(names, outputs, strict=True) if name == node.name}
            if len(meant) > 1:
                raise InvalidQuery(
                    f"ORDER BY {node.name} is ambiguous: several columns of the SELECT list have that name",
                    hint="give each a name of its own with AS, or order by its place: ORDER BY 1",
                ).placed(*position_of(node))


def _without_order(select: exp.Select, context: Context) -> exp.Select:
    """Drop an ORDER BY without LIMIT, after checking it: it does not change which rows there are.

    Raises:
        SqlError: it is not valid, or the statement is CREATE STREAM or TABLE.
    """
    if context.kind is not None:
        check_order(select)
    order = order_items(select)
    if not order:
        return select
    made = select.copy()
    made.set("order", None)
    _Reader(made.copy(), context).block(order)
    return made


class _Reader:
    def __init__(self, select: exp.Select, context: Context, *, nest_items: bool = False) -> None:
        """Read FROM; `nest_items` says that more than the SELECT itself reads the items of its UNNEST."""
        self._given = select
        select = with_subqueries_in_where(select)
        if context.kind is None:
            select = grouped_items(select)
        self._select = select
        self._context = context
        windowed = select.args.get("time_window") is not None
        grouped = select.args.get("group") is not None
        self._joins = Joins(read_from(select, context), context, windowed=windowed, grouped=grouped)
        if self._joins.expand and (nest_items or windowed or repeats_rows(select)):
            self._joins.nest_items()
        self._inputs = self._joins.inputs
        nested = context.nested_in(self._inputs)
        self._subqueries = nested or Subqueries(self._inputs, context, self._joins.padded)
        self._calls = Calls(self._inputs, context.semantics)
        self._analytic = AnalyticCalls(self._inputs, self._in_call, context.semantics)
        self._tables = TableFunctions()
        self._aliases: dict[str, Output] = {}
        self._parts = 0
        """Of all that names of the SELECT list have stood for: each may stand for the one before it twice."""
        self.shown = 0
        self.order: tuple[OrderItem, ...] = ()

    def block(self, order: Sequence[exp.Expr] = ()) -> Block:
        """The block; with `order`, also the columns by which its rows are ordered."""
        if self._context.strict and self._context.kind is not None:
            check_select(self._select, self._inputs)
        where = self._where()
        constants = self._context.semantics == "ksql"
        # To ksqlDB 1 is a value.
        mine = self._context.kind is None and not constants
        outputs = read_outputs(
            self._select,
            self._inputs,
            self._value,
            naming=self._naming,
            unnamed=self._context.unnamed,
            named=self._note_alias if self._names_items else lambda _: None,
            branch=self._context.branch,
        )
        if self._tables.found and self._select.args.get("group") is not None:
            hint = "name the items, and group by the name; or explode in a subquery in FROM"
            raise NotSupported("EXPLODE in a query that groups is not supported yet", hint=hint)
        groups = read_groups(
            self._select, self._inputs, outputs, self._calls, self._before_groups, constants=constants, selected=mine
        )
        aliases = {output.name: output for output in outputs}
        self._aliases = aliases if self._names_items else {}
        having = self._condition("having", "HAVING")
        self._aliases = aliases
        qualify = self._condition("qualify", "QUALIFY")
        partition_by = self._partition_by()
        ksql = self._context.kind is not None or self._context.semantics == "ksql"
        grace = DEFAULT_GRACE if ksql else None
        window, time = read_window(self._select, self._inputs, default_grace=grace)
        distinct = self._select.args.get("distinct") is not None
        self.shown = len(outputs)
        if self._items_are_asked:
            other = _Reader(self._given, self._context, nest_items=True)
            found_again = other.block(order)
            self.shown, self.order = other.shown, other.order
            return found_again
        _check_names(order, self._select, outputs)
        outputs, self.order = read_order(order, outputs, self._typed, distinct=distinct)
        made = Block(
            inputs=(*self._joins.in_order(), *self._subqueries.froms),
            where=where,
            outputs=outputs,
            expand=(*self._joins.expand, *self._tables.found),
            window=window,
            time=time,
            having=having,
            partition=self._analytic.partition,
            analytic=self._analytic.found,
            qualify=qualify,
            distinct=distinct,
            partition_by=partition_by,
        )
        if groups is not None or self._calls.found or having is not None:
            found, sets = groups or ((), ())
            made = self._grouped(replace(made, group=named_groups(found, outputs), sets=sets, calls=self._calls.found))
        self._check(made, explicit=groups is not None)
        made = ksql_block(made) if self._context.semantics == "ksql" else made
        made = without_unread(with_key(made, self._joins, self._context.kind, self._context.semantics))
        late = self._late_values(made)
        made = after_groups(made, late) if late else made
        return partitions_apart(made, self._analytic.partitions)

    @property
    def _items_are_asked(self) -> bool:
        """True if a subquery is found by the items of UNNEST: a stage joins its inputs before it has the items."""
        items = {each.name for each in self._joins.expand}
        read = (each.on.find_all(exp.Column) for each in self._subqueries.froms if each.on is not None)
        return any(not node.table and node.name in items for columns in read for node in columns)

    @property
    def _naming(self) -> Naming:
        if self._context.pulls:
            return "pull"
        if self._context.kind is not None:
            return "ksql"
        return "prefixed" if self._context.prefixed else "view"

    @property
    def _names_items(self) -> bool:
        """True if names of the SELECT list stand for their items; to ksqlDB they are known to nothing in the query."""
        return self._context.pulls or (self._context.kind is None and self._context.semantics != "ksql")

    def _late_values(self, block: Block) -> list[From]:
        """The subqueries whose values are read after grouping, joined over the names of groups and calls."""
        if block.group is None:
            return []
        names = {sql_of(key.expression): key.name for key in block.group}
        nodes = [*(output.expression for output in block.outputs), *block.partition]
        nodes += [node for node in (block.having, block.qualify) if node is not None]
        nodes += [node for call in block.analytic for node in (*call.arguments, *(each for each, _, _ in call.order))]
        read = {alias for node in nodes for alias in aliases(node)}
        found = [each for each in self._subqueries.values if each.alias in read]
        return [
            replace(each, on=over_groups(each.on, names, self._calls, read)) if each.on is not None else each
            for each in found
        ]

    def _value(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """A value that `infer` does not know: a subquery, a call, or an alias; None for any other node."""
        meant = composed(node)
        if meant is not None:
            return self._typed(meant)
        for read in (self._subqueries.read, self._analytic.read, self._calls.read, self._tables.read):
            found = read(node, self._over_inputs)
            if found is not None:
                return found
        return self._grouping(node, typed) or self._alias(node)

    def _in_call(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """The same inside a function OVER a window: a subquery or an aggregate call."""
        meant = composed(node)
        if meant is not None:
            return infer(meant, self._inputs, self._in_call)
        found = self._subqueries.read(node, typed) or self._calls.read(node, typed)
        return found or self._grouping(node, typed) or self._alias_below(node)

    def _typed(self, node: exp.Expr) -> Typed:
        return infer(node, self._inputs, self._value)

    def _over_inputs(self, node: exp.Expr) -> Typed:
        """An expression over the inputs that may have queries inside, and names of the SELECT list."""
        return infer(node, self._inputs, self._of_row)

    def _of_row(self, node: exp.Expression, typed: Infer) -> Typed | None:
        found = self._subqueries.read(node, typed)
        return found or self._alias_below(node, calls=False)

    def _before_groups(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """A subquery, or the value that one stands for, of a row before it is grouped."""
        value = self._subqueries.value_of(node) if isinstance(node, exp.Column) else None
        return value or self._subqueries.read(node, typed)

    def _grouping(self, node: exp.Expression, typed: Infer) -> Typed | None:
        return grouping_call(node, typed, grouped=self._select.args.get("group") is not None)

    def _note_alias(self, output: Output) -> None:
        self._aliases.setdefault(output.name, output)

    def _alias(self, node: exp.Expression) -> Typed | None:
        """A name of the SELECT list, which what follows may use unless an input has a column of that name."""
        if not isinstance(node, exp.Column) or node.table or node.name not in self._aliases or is_parameter(node):
            return None
        try:
            return self._inputs.resolve(node)
        except UnknownName:
            found = self._aliases[node.name]
            self._count(found.expression)
            value = found.expression.copy()
            return Typed(value if _stands_alone(value, node.parent) else exp.Paren(this=value), found.type)

    def _count(self, value: exp.Expr) -> None:
        """Count what a name stands for. Raises NotSupported: all of them stand for too much."""
        self._parts += sum(1 for _ in value.walk())
        check_parts(self._parts, PULL if self._context.pulls else VIEW)

    def _alias_below(self, node: exp.Expression, *, calls: bool = True) -> Typed | None:
        """The same inside a call, which takes what is computed before it: a value of the row, or an aggregate too."""
        found = self._alias(node)
        if found is None:
            return None
        items = self._inputs.items
        # The value of a function OVER a window, and an item of EXPLODE, have no input before them.
        of_rows = all(each.table or each.name in items for each in found.expression.find_all(exp.Column))
        aggregated = any(self._calls.call_of(each) is not None for each in found.expression.walk())
        return found if of_rows and (calls or not aggregated) else None

    def _where(self) -> exp.Expression | None:
        clause = self._select.args.get("where")
        found = self._subqueries.where(self._with_items(clause.this)) if clause is not None else []
        terms = self._joins.place(found)
        return conjoined(terms) if terms else None

    def _with_items(self, tree: exp.Expr) -> exp.Expr:
        """WHERE, which is read before the SELECT list, with the items that it names, as in Snowflake and DuckDB."""
        items: dict[str, exp.Expr] = {}

        def meant(node: exp.Expr) -> exp.Expr:
            made = exp.Paren(this=node.copy())
            for each in list(made.find_all(exp.Column)):
                if self._is_item(each, items):
                    self._count(items[each.name])
                    each.replace(exp.Paren(this=items[each.name].copy()))
            inner: exp.Expr = made.this
            return inner

        for each in self._select.expressions if self._names_items else ():
            rows = any(node.name in TABLE_FUNCTIONS for node in each.find_all(exp.Anonymous))
            if isinstance(each, exp.Alias) and each.find(exp.Query) is None and not rows:
                items.setdefault(each.alias, meant(each.this))
        return meant(tree) if items else tree

    def _is_item(self, node: exp.Column, items: Mapping[str, exp.Expr]) -> bool:
        """True if a name can only be that of an item: no input, nor the query around, has a column of that name."""
        if node.table or node.name not in items or is_parameter(node) or node.find_ancestor(exp.Query) is not None:
            return False
        return self._inputs.find(node) is None

    def _condition(self, clause: str, name: str) -> exp.Expression | None:
        found = self._select.args.get(clause)
        return condition(found.this, self._inputs, name, self._value) if found is not None else None

    def _partition_by(self) -> tuple[exp.Expression, ...]:
        clause = self._select.args.get("partition_by")
        if clause is None:
            return ()
        found = [infer(node, self._inputs) for node in clause.expressions]
        wrong = next((each for each in found if has_map(each.type)), None)
        if wrong is not None:
            raise self._invalid(clause, f"the key of a record cannot be {wrong.type}")
        if len(found) > 1 and any(isinstance(each.expression, exp.Null) for each in found):
            raise self._invalid(clause, "PARTITION BY NULL stands alone: the records have no key then")
        return tuple(each.expression for each in found)

    def _grouped(self, block: Block) -> Block:
        """The block with its later clauses rewritten over the names of groups and calls."""
        assert block.group is not None
        names = {sql_of(key.expression): key.name for key in block.group}
        kept = {each.alias for each in self._subqueries.values}

        def over(node: exp.Expression) -> exp.Expression:
            return over_groups(over_marks(node, names, sets=bool(block.sets)), names, self._calls, kept)

        return replace(
            block,
            outputs=tuple(replace(output, expression=over(output.expression)) for output in block.outputs),
            having=over(block.having) if block.having is not None else None,
            qualify=over(block.qualify) if block.qualify is not None else None,
            partition=tuple(over(node) for node in block.partition),
            analytic=tuple(
                replace(
                    call,
                    arguments=tuple(over(node) for node in call.arguments),
                    order=tuple((over(node), down, first) for node, down, first in call.order),
                )
                for call in block.analytic
            ),
        )

    def _check(self, block: Block, *, explicit: bool) -> None:
        """Check the clauses against each other."""
        if block.window is not None and not explicit:
            raise self._invalid(self._select, "WINDOW needs GROUP BY: it cuts groups", "add GROUP BY")
        if block.qualify is not None and not block.analytic:
            raise self._invalid(self._select.args["qualify"], "QUALIFY needs a function OVER a window", "use WHERE")
        if self._tables.found and block.group is not None:
            raise NotSupported(
                "EXPLODE in a query that groups is not supported yet", hint="explode in a subquery in FROM"
            )
        if block.partition_by and (block.group is not None or not any(p.stream for p in self._inputs.parts)):
            raise self._invalid(
                self._select.args["partition_by"],
                "PARTITION BY is for streams: the key of a table is what identifies its rows",
            )
        if self._context.kind == "table" and block.group is not None and not explicit:
            raise self._invalid(
                self._select,
                "an aggregate needs GROUP BY",
                "for one row over all: CREATE MATERIALIZED VIEW … AS",
            )

    def _invalid(self, node: exp.Expr, message: str, hint: str | None = None) -> InvalidQuery:
        return InvalidQuery(message, hint=hint).placed(*position_of(node))


# What is checked of a SELECT before it is read: clauses that are refused, its order, what repeats its rows.

# Clauses that parse and are refused: argument of the tree -> name.
_REFUSED = {"laterals": "LATERAL", "into": "SELECT INTO"}
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_ORDERS = {"order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def check_clauses(select: exp.Select) -> None:
    """Refuse the clauses that parse but are not supported.

    Raises:
        NotSupported: it has one.
    """
    for argument, what in _REFUSED.items():
        clause = select.args.get(argument)
        if clause:
            raise NotSupported(f"{what} is not supported yet").placed(
                *position_of(clause[0] if isinstance(clause, list) else clause)
            )
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise NotSupported(
            "DISTINCT ON in CREATE STREAM or TABLE is not supported", hint="CREATE MATERIALIZED VIEW … AS"
        ).placed(*position_of(distinct))


def check_order(query: exp.Query) -> None:
    """Refuse an order in a query of CREATE STREAM or TABLE: a stored table has none.

    Raises:
        NotSupported: ORDER BY, LIMIT or OFFSET.
    """
    for argument, what in _ORDERS.items():
        clause = query.args.get(argument)
        if clause is not None:
            raise NotSupported(
                f"{what} in CREATE STREAM or TABLE is not supported",
                hint="order the rows where they are read; ORDER BY … LIMIT n is for CREATE MATERIALIZED VIEW",
            ).placed(*position_of(clause))


def repeats_rows(select: exp.Select) -> bool:
    """True if a clause of a SELECT makes several rows of one, as UNNEST does. A stage can do that only once."""
    group = select.args.get("group")
    sets = group is not None and (group.args.get("rollup") or group.args.get("cube") or group.find(*_SETS) is not None)
    calls = (node for item in select.expressions for node in item.find_all(exp.Anonymous))
    return bool(sets) or any(call.name in TABLE_FUNCTIONS for call in calls)


def _stands_alone(value: exp.Expression, around: exp.Expr | None) -> bool:
    """True if a value means the same without brackets in the place of a name."""
    if isinstance(value, exp.Column | exp.Anonymous | exp.Literal | exp.Paren):
        return True
    if isinstance(around, exp.Predicate):
        return isinstance(value, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod)
    if isinstance(around, exp.Connector | exp.Not):
        return isinstance(value, exp.Predicate)
    return isinstance(around, exp.Paren) or not isinstance(
        around, exp.Binary | exp.Unary | exp.Cast | exp.Bracket | exp.Dot
    )
