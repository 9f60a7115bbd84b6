"""What ksqlDB asks beyond SQL: the SELECTs and projections that it refuses, and NULL with SEMANTICS='ksql'."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.functions.aggregates.registry import functions
from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import PSEUDO_COLUMNS, WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.clauses.from_clause import join_type
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.nested import TABLE_FUNCTIONS
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.query.inputs import FromItem, Inputs, is_equality
from strandline.jobs.query.logical import Block, Query, SetOperation
from strandline.jobs.sql.dialect import position_of, quote, sql_of
from strandline.jobs.sql.trees import conjuncts
from strandline.state_store.wording import Name, sentence

# What ksqlDB refuses of the SELECT of CREATE STREAM and CREATE TABLE, where a materialized view takes it.
#
# | refused | because |
# | --- | --- |
# | 9223372036854775808, 1E400 | a literal is a BIGINT or a DOUBLE at most |
# | WHERE NULL | NULL is no condition |
# | GROUP BY a, a | an expression is named once, in PARTITION BY too |
# | WHERE windowstart > 0, MAX(windowstart) | the bounds are there once the rows are in their windows |
# | FROM table WINDOW …, EXPLODE(…) of a table | rows of a table have no place in time, and one row each |
# | a = NULL | it would never be TRUE |
# | a < b of BOOLEANs, ARRAYs, STRUCTs | they have no order |
# | CASE … EXPLODE(…) | the rows of an item come whatever the branch |
# | TRANSFORM(a, b => …), where b is a column | it would not be seen which is meant |
# | table JOIN stream, ON int = bigint | events wait for no row; keys of two types lie in other partitions |
# | a table of windows JOIN another table | a window is part of the one key, and not of the other |
#
# It is asked when a statement is given for the first time: a definition that is there goes on as it is.


_MOST = 2**63 - 1
_INSTEAD = "CREATE MATERIALIZED VIEW … AS takes it"


def check_select(select: exp.Select, inputs: Inputs) -> None:
    """Check one SELECT, as it is written, over its inputs.

    Raises:
        InvalidQuery, TypeMismatch: with the place.
    """
    for literal in select.find_all(exp.Literal):
        _check_number(literal)
    where = select.args.get("where")
    if where is not None and isinstance(where.this, exp.Null):
        raise _refused(where.this, "WHERE takes a condition, and NULL is none", TypeMismatch)
    for argument, what in (("group", "GROUP BY"), ("partition_by", "PARTITION BY")):
        clause = select.args.get(argument)
        _check_once(clause.expressions if clause is not None else (), what)
    if select.args.get("time_window") is not None:
        _check_window(select, inputs)
    for node in select.find_all(exp.Lambda):
        _check_variables(node, inputs)
    for compared in select.find_all(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE):
        _check_compared(compared, inputs)
    for item in select.expressions:
        _check_alias(item)
        for call in item.find_all(exp.Anonymous):
            if call.name in TABLE_FUNCTIONS:
                _check_table_function(call, inputs)


def check_join(node: exp.Join, part: FromItem, inputs: Inputs, before: Inputs) -> None:
    """Check one join, as it is written; `inputs` are those before it and its own.

    Raises:
        InvalidQuery: a table is joined with a stream after it, a table of windows with one without, or RIGHT or FULL
            JOIN of tables is not on the key of the left one.
        TypeMismatch: the sides of its equality are of two types.
    """
    if part.stream and not any(each.stream for each in before.parts):
        first = before.parts[0].name
        raise _refused(
            node.this,
            sentence(
                "a stream joins a table, not the other way: FROM {} JOIN {}", Name(part.name, quote), Name(first, quote)
            ),
        )
    windows = [_has_windows(each) for each in (*before.parts, part)]
    if any(windows) and not all(windows):
        raise _refused(
            node.this,
            sentence("windows join windows alone: '{}' and what is before it are no such pair", Name(part.name)),
        )
    tree = node.args.get("on")
    for term in conjuncts(tree) if isinstance(tree, exp.Expression) else ():
        if not isinstance(term, exp.EQ):
            continue
        left, right = infer(term.this.copy(), inputs), infer(term.expression.copy(), inputs)
        equal = exp.EQ(this=left.expression, expression=right.expression)
        if not is_equality(equal, part.alias, before.aliases):
            continue
        if join_type(node) in ("right", "full") and not part.stream and not _on_key((left, right), before):
            raise _refused(term, f"a {node.side} JOIN of tables is on both primary keys", hint=_INSTEAD)
        if left.type != right.type:
            message = f"the sides of the join are of two types: {sql_of(term)} compares {left.type} with {right.type}"
            raise _refused(term, message, TypeMismatch, f"CAST one side; {_INSTEAD}")


def _has_windows(part: FromItem) -> bool:
    """True if a window is part of its rows' key."""
    return any(name in WINDOW_BOUNDS for name in part.row_key)


def _on_key(sides: tuple[Typed, Typed], before: Inputs) -> bool:
    """True if a side of a join is the primary key of a table before it."""
    columns = [side.expression for side in sides if isinstance(side.expression, exp.Column)]
    return any(each.table == part.alias and part.row_key == (each.name,) for each in columns for part in before.parts)


def _check_number(literal: exp.Literal) -> None:
    text = str(literal.this)
    if literal.is_string:
        return
    if text.isdigit():
        least = isinstance(literal.parent, exp.Neg) and int(text) == _MOST + 1
        if int(text) > _MOST and not least:
            raise _refused(literal, f"{text} is no BIGINT", hint=f"with a point it is a DECIMAL: {text}.0; {_INSTEAD}")
    elif "e" in text.lower() and math.isinf(float(text)):
        raise _refused(literal, f"{text} is no DOUBLE: it is too large")


def _check_once(expressions: Iterable[exp.Expr], what: str) -> None:
    counted = Counter(sql_of(each) for each in expressions)
    twice = next((each for each in expressions if counted[sql_of(each)] > 1), None)
    if twice is not None:
        raise _refused(twice, f"{what} names {sql_of(twice)} twice")


def _check_window(select: exp.Select, inputs: Inputs) -> None:
    if not any(part.stream for part in inputs.parts):
        table = inputs.parts[0].name
        raise _refused(select, sentence("WINDOW is for streams, and '{}' is a table", Name(table)), hint=_INSTEAD)
    known = functions("ksql")
    clauses = [select.args[name] for name in ("where", "having") if select.args.get(name) is not None]
    calls = [call for call in select.find_all(exp.Anonymous) if call.name in known]
    for node in (*clauses, *calls):
        bound = next((each for each in node.find_all(exp.Column) if each.name in WINDOW_BOUNDS), None)
        if bound is not None:
            raise _refused(
                bound,
                f"{bound.name.upper()} of a query with WINDOW stands in the SELECT list, outside of aggregates",
                hint=f"filter in a query over this one; {_INSTEAD}",
            )


def _check_variables(node: exp.Lambda, inputs: Inputs) -> None:
    taken = {name for part in inputs.parts for name, _ in part.columns}
    above = node.find_ancestor(exp.Lambda)
    while above is not None:
        taken |= {variable.name for variable in above.expressions}
        above = above.find_ancestor(exp.Lambda)
    for variable in node.expressions:
        if variable.name in taken:
            raise _refused(variable, f"'{variable.name}' is a column, or a variable of a function around this one")
        taken.add(variable.name)


def _check_compared(node: exp.Expr, inputs: Inputs) -> None:
    if isinstance(node.this, exp.Null) or isinstance(node.expression, exp.Null):
        hint = "write IS NULL or IS NOT NULL"
        raise _refused(node, f"nothing can be compared with NULL: {sql_of(node)}", TypeMismatch, hint)
    if isinstance(node, exp.EQ | exp.NEQ):
        return
    for side in (node.this, node.expression):
        found = inputs.find(side) if isinstance(side, exp.Column) and not isinstance(side.this, exp.Star) else None
        if found is not None and (found.type.is_nested or found.type.base is BaseType.BOOLEAN):
            raise _refused(node, f"values of type {found.type} cannot be compared: {sql_of(node)}", TypeMismatch)


def _check_alias(item: exp.Expr) -> None:
    name = item.alias.lower()
    shows_itself = isinstance(item, exp.Alias) and isinstance(item.this, exp.Column) and item.this.name.lower() == name
    if name in (*PSEUDO_COLUMNS, *WINDOW_BOUNDS) and not (shows_itself and name in WINDOW_BOUNDS):
        raise _refused(item, f"'{item.alias}' is reserved: it cannot be the name of a column")


def _check_table_function(call: exp.Anonymous, inputs: Inputs) -> None:
    if call.find_ancestor(exp.Case) is not None:
        raise _refused(call, f"{call.name} gives rows, and cannot stand in CASE")
    if not any(part.stream for part in inputs.parts):
        raise _refused(
            call,
            sentence("{} is for streams, and '{}' is a table", call.name, Name(inputs.parts[0].name)),
            hint=_INSTEAD,
        )


def _refused(
    node: exp.Expr, message: str, error: type[InvalidQuery] | type[TypeMismatch] = InvalidQuery, hint: str | None = None
) -> InvalidQuery | TypeMismatch:
    return error(message, hint=hint).placed(*position_of(node))


# ksqlDB's checks on the SELECT of CREATE STREAM and CREATE TABLE, which gives a record's key and value.
#
# | SELECT | refused, because |
# | --- | --- |
# | name FROM s | the record has no key: id is not selected |
# | id FROM s | the record has no value |
# | id, id AS again, name FROM s | the key is selected once; a copy in the value is AS_VALUE(id) AS again |
# | id FROM s GROUP BY id | nothing is aggregated: SELECT DISTINCT does the same |
#
# A materialized view is a table of the lake, with no record: none of this applies to it.


def check_projection(query: Query, kind: Kind) -> None:
    """Check the selected columns of CREATE STREAM or TABLE.

    Args:
        kind: the statement creates a stream or a table.

    Raises:
        InvalidQuery: the key is not selected, or more than once, or nothing else is; a table groups and aggregates
            nothing.
    """
    for block in query.branches if isinstance(query, SetOperation) else (query,):
        if isinstance(block, Block):
            _check_key(block)
            _check_aggregates(block, kind)


def _check_key(block: Block) -> None:
    if block.unseen_key:
        raise InvalidQuery(
            f"the query must select the {block.unseen_key}",
            hint="it becomes the key of the records; CREATE MATERIALIZED VIEW … AS may leave it out",
        )
    if block.key and all(output.name in block.key for output in block.outputs):
        raise InvalidQuery(
            f"the query selects nothing but the key: {', '.join(block.key)}",
            hint=f"select a value too, as AS_VALUE({block.key[0]}) AS name; CREATE MATERIALIZED VIEW … AS needs none",
        )
    keys = {sql_of(output.expression): output.name for output in block.outputs if output.name in block.key}
    for output in block.outputs:
        key = keys.get(sql_of(output.expression), output.name)
        if key != output.name:
            raise InvalidQuery(
                f"the query selects the key more than once: '{key}' and '{output.name}'",
                hint=f"a copy of the key in the value: AS_VALUE({key}) AS {output.name}",
            )


def _check_aggregates(block: Block, kind: Kind) -> None:
    if kind == "table" and block.group is not None and not block.calls:
        raise InvalidQuery(
            "GROUP BY without an aggregate function in SELECT or HAVING",
            hint="add one, such as COUNT(*); CREATE MATERIALIZED VIEW … AS needs none",
        )


# NULL in expressions with SEMANTICS='ksql': a comparison with NULL is FALSE.
#
#     a = b, a < b, a IN (b), a BETWEEN b AND c, a LIKE b     FALSE, not NULL
#     TRANSFORM(numbers, x => x + 1) with a NULL in numbers   NULL, as any computation that fails: not [.., NULL]
#
# WHERE, CASE and HAVING treat NULL like FALSE, so a comparison that is itself their condition stays as it is, and can
# be used for a join.

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Like, exp.Escape)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_FUNCTIONS = ("TRANSFORM", "FILTER")


def ksql_block(block: Block) -> Block:
    """Give all expressions of a block ksqlDB's meaning of NULL; join conditions stay as they are."""
    return replace(
        block,
        where=block.where and ksql_condition(block.where),
        having=block.having and ksql_condition(block.having),
        qualify=block.qualify and ksql_condition(block.qualify),
        outputs=_outputs(block.outputs),
        expand=_outputs(block.expand),
        group=block.group and _outputs(block.group),
        calls=tuple(
            replace(call, arguments=tuple(ksql_value(argument) for argument in call.arguments)) for call in block.calls
        ),
        partition_by=tuple(ksql_value(node) for node in block.partition_by),
    )


def _outputs(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    return tuple(replace(output, expression=ksql_value(output.expression)) for output in outputs)


def ksql_value(expression: exp.Expression) -> exp.Expression:
    """Give an elaborated expression, whose value is shown or stored, ksqlDB's meaning of NULL."""
    return _value(expression.copy())


def ksql_condition(expression: exp.Expression) -> exp.Expression:
    """Give an elaborated condition ksqlDB's meaning of NULL; as a whole it may stay NULL instead of FALSE."""
    return _condition(expression.copy())


def _condition(node: exp.Expression) -> exp.Expression:
    if isinstance(node, (exp.And, exp.Or)):
        for side in ("this", "expression"):
            node.set(side, _condition(node.args[side]))
        return node
    if isinstance(node, exp.Paren):
        node.set("this", _condition(node.this))
        return node
    return _with_parts(node)


def _value(node: exp.Expression) -> exp.Expression:
    node = _with_parts(node)
    if isinstance(node, _COMPARISONS):
        return exp.Anonymous(this="COALESCE", expressions=[node, exp.false()])
    if isinstance(node, exp.Anonymous) and node.name in _FUNCTIONS:
        return _unless_failing(node)
    return node


def _with_parts(node: exp.Expression) -> exp.Expression:
    """The node with its parts converted; a WHEN and the LIKE of an ESCAPE are converted as conditions."""
    for key, part in list(node.args.items()):
        parts = part if isinstance(part, list) else [part]
        convert = _condition if _decides(node, key) else _value
        made = [convert(each) if isinstance(each, exp.Expression) else each for each in parts]
        if any(isinstance(each, exp.Expression) for each in parts):
            node.set(key, made if isinstance(part, list) else made[0])
    return node


def _decides(node: exp.Expression, key: str) -> bool:
    """True if NULL in that part counts as FALSE, or if the part is only the inside of a comparison."""
    in_case = (
        isinstance(node, exp.If) and key == "this" and not (isinstance(node.parent, exp.Case) and node.parent.this)
    )
    return in_case or (isinstance(node, exp.Escape) and key == "this")


def _unless_failing(node: exp.Anonymous) -> exp.Expression:
    """NULL instead of the array when its function computes with a NULL for one of the items."""
    items, function = node.expressions
    names = {variable.name for variable in function.expressions}
    operands = [side for each in function.this.find_all(*_ARITHMETIC) for side in (each.left, each.right)]
    uses = [side for side in operands if any(name.name in names for name in side.find_all(exp.Identifier))]
    if not uses:
        return node
    failing: exp.Expression = exp.Is(this=uses[0].copy(), expression=exp.Null())
    for side in uses[1:]:
        failing = exp.Or(this=failing, expression=exp.Is(this=side.copy(), expression=exp.Null()))
    found = exp.Anonymous(
        this="FILTER",
        expressions=[
            items.copy(),
            exp.Lambda(this=failing, expressions=[each.copy() for each in function.expressions]),
        ],
    )
    none = exp.EQ(this=exp.Anonymous(this="ARRAY_LENGTH", expressions=[found]), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=none, true=node)])
