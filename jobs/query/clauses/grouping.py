"""GROUP BY and WINDOW: group expressions, grouping sets, and what the clauses after grouping read.

SELECT area, SUM(a) / COUNT(*) + SUM(a) AS x FROM s GROUP BY area

    group  area = s.area        calls  __a0 = SUM(s.a), __a1 = COUNT(*)        x = __a0 / __a1 + __a0

GROUP BY ROLLUP (a, b), GROUPING SETS ((c), ())
    group  a, b, c              sets   (a, b, c), (a, b), (a, c), (a), (c), ()

GROUP BY a, b WITH ROLLUP       is GROUP BY ROLLUP (a, b)
GROUP BY ALL                    is GROUP BY what the SELECT list does not aggregate
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Literal, cast

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.clauses.aggregate_calls import Calls
from strandline.jobs.query.expressions.infer import OF_SETS, Aggregate, infer
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.query.inputs import BOUNDS, Inputs, aliases, mark_name, mark_outputs, mark_value
from strandline.jobs.query.logical import Block, From, TimeWindow
from strandline.jobs.query.pulled import place_of
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.time_clauses import milliseconds

_MOST_SETS = 128
"""The limit on grouping sets, a CUBE over seven columns: each set makes a copy of every row."""


def read_groups(
    select: exp.Select,
    inputs: Inputs,
    outputs: tuple[Output, ...],
    calls: Calls,
    read: Aggregate,
    *,
    constants: bool,
    selected: bool = False,
) -> tuple[tuple[Typed, ...], tuple[tuple[int, ...], ...]] | None:
    """Read GROUP BY: its expressions, each once, and the grouping sets as indexes into them; no sets for a plain GROUP
    BY.

    Args:
        read: elaborates the subqueries in an expression.
        constants: ksqlDB's semantics: GROUP BY 1 groups by the value 1, and there are no grouping sets.
        selected: a position of the SELECT list, or a name that only it has, stands for its value.

    Returns:
        None without GROUP BY.

    Raises:
        InvalidQuery: a constant, or values that cannot be compared; too many sets.
        NotSupported: grouping sets in ksqlDB's semantics.
        UnknownName: a column that the inputs lack, though the SELECT list may have it.
    """
    clause = select.args.get("group")
    if clause is None:
        return None
    if clause.args.get("all") and not clause.expressions:
        return _all_groups(inputs, outputs, calls, constants=constants), ()
    if not clause.expressions:
        raise InvalidQuery("GROUP BY names nothing", hint="GROUP BY a, b; GROUP BY () is one group of all rows")
    found: dict[str, Typed] = {}

    def number(node: exp.Expr) -> int:
        of_list = _selected(node, inputs, outputs, read) if selected else None
        group = of_list or _group(node, inputs, outputs, read)
        _check_group(group, numbers=constants or of_list is not None)
        found.setdefault(sql_of(group.expression), group)
        return list(found).index(sql_of(group.expression))

    choices = [_sets(node, number) for node in _items(clause)]
    sets = [tuple(sorted({n for part in each for n in part})) for each in product(*choices)]
    if len(sets) > _MOST_SETS:
        raise InvalidQuery(f"GROUP BY asks for {len(sets)} grouping sets, and {_MOST_SETS} is the most").placed(
            *position_of(clause)
        )
    if sets == [tuple(range(len(found)))]:
        return tuple(found.values()), ()
    if constants:
        raise NotSupported(
            "GROUPING SETS, ROLLUP and CUBE are SQL's: ksqlDB has none, so SEMANTICS = 'ksql' says nothing of them",
            hint="leave SEMANTICS out",
        ).placed(*position_of(clause))
    return tuple(found.values()), tuple(sets)


def _all_groups(inputs: Inputs, outputs: tuple[Output, ...], calls: Calls, *, constants: bool) -> tuple[Typed, ...]:
    """GROUP BY ALL: what the SELECT list has of columns that are not aggregated, each once; constants are no groups."""
    items = inputs.items
    found: dict[str, Typed] = {}
    for output in outputs:
        expression = output.expression.unnest()
        columns = list(expression.find_all(exp.Column))
        # The value of a function OVER a window, and a bound of the row's own, have no input before them.
        of_rows = bool(columns) and all(node.table or node.name in items for node in columns)
        if of_rows and not any(calls.call_of(node) is not None for node in expression.walk()):
            assert isinstance(expression, exp.Expression)
            group = Typed(expression, output.type)
            _check_group(group, numbers=constants)
            found.setdefault(sql_of(expression), group)
    return tuple(found.values())


def named_groups(groups: tuple[Typed, ...], outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Name the groups: as the first output with the same expression, or else `__k0`, …."""
    shown: dict[str, str] = {}
    for output in outputs:
        shown.setdefault(sql_of(output.expression.unnest()), output.name)
    keys, hidden = [], 0
    for group in groups:
        name = shown.get(sql_of(group.expression))
        if name is None:
            name, hidden = f"__k{hidden}", hidden + 1
        keys.append(Output(name, group.expression, group.type))
    return tuple(keys)


def over_groups(
    node: exp.Expression, groups: Mapping[str, str], calls: Calls, kept: Collection[str] = ()
) -> exp.Expression:
    """Rewrite an elaborated expression over the inputs to the names of groups and calls.

    Args:
        groups: text of each elaborated group expression -> its name.
        kept: inputs whose columns stay as they are.

    Raises:
        InvalidQuery: a column that is neither grouped by nor aggregated.
    """
    name = groups.get(sql_of(node))
    if name is not None:
        return column(name)
    call = calls.call_of(node)
    if call is not None:
        return column(call.name)
    if isinstance(node, exp.Column):
        if not node.table or node.table in kept:  # bounds of a window; values joined after grouping
            return node.copy()
        raise InvalidQuery(
            f"column '{node.name}' is neither grouped by nor aggregated",
            hint=f"add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET({node.name})",
        ).placed(*position_of(node))
    made = node.copy()
    for child in list(made.iter_expressions()):
        if isinstance(child, exp.Identifier | exp.DataType):
            continue
        assert isinstance(child, exp.Expression)
        child.replace(over_groups(child, groups, calls, kept))
    return made


def _items(clause: exp.Expr) -> list[exp.Expr]:
    """The items of GROUP BY; those before WITH ROLLUP or WITH CUBE are one."""
    items = clause.expressions
    ways = [kind for kind in (exp.Rollup, exp.Cube) if clause.args.get(kind.key)]
    if not ways:
        return items
    nested = any(isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets) for item in items)
    if len(ways) > 1 or nested:
        raise InvalidQuery(
            f"WITH {ways[0].key.upper()} is about all of GROUP BY: it stands with plain expressions alone",
            hint="GROUP BY ROLLUP (a, b), CUBE (c, d)",
        ).placed(*position_of(clause))
    return [ways[0](expressions=[item.copy() for item in items])]


def _sets(node: exp.Expr, number: Callable[[exp.Expr], int]) -> list[tuple[int, ...]]:
    """The grouping sets that one item of GROUP BY stands for."""
    match node:
        case exp.Rollup():
            items = [_one(item, number) for item in node.expressions]
            return [_joined(items[:length]) for length in range(len(items), -1, -1)]
        case exp.Cube():
            items = [_one(item, number) for item in node.expressions]
            return [
                _joined(list(chosen)) for length in range(len(items), -1, -1) for chosen in combinations(items, length)
            ]
        case exp.GroupingSets():
            return [each for item in node.expressions for each in _sets(item, number)]
        case _:
            return [_one(node, number)]


def _one(node: exp.Expr, number: Callable[[exp.Expr], int]) -> tuple[int, ...]:
    """One grouping set, written `a`, `(a)`, `(a, b)` or `()`."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Tuple):
        return tuple(number(item) for item in node.expressions)
    return (number(node),)


def _joined(items: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(n for item in items for n in item)


def _selected(node: exp.Expr, inputs: Inputs, outputs: tuple[Output, ...], read: Aggregate) -> Typed | None:
    """The value of the SELECT list that a position or a name stands for; None for anything else."""
    found: exp.Expression | None = None
    if isinstance(node, exp.Literal) and node.is_int:
        found = outputs[place_of(node, len(outputs), "GROUP BY")].expression
    elif isinstance(node, exp.Column) and not node.table and inputs.find(node) is None:
        found = next((output.expression for output in outputs if output.name == node.name), None)
    # Read once more, without aggregates: nothing is grouped by those.
    return infer(found, inputs, read) if found is not None else None


def _group(node: exp.Expr, inputs: Inputs, outputs: tuple[Output, ...], read: Aggregate) -> Typed:
    try:
        found = infer(node, inputs, read)
    except UnknownName as error:
        named = next((output for output in outputs if output.name == node.name), None)
        if named is None or not isinstance(node, exp.Column):
            raise
        hint = f"GROUP BY reads the input, not the SELECT list: GROUP BY {inputs.words(named.expression)}"
        raise UnknownName(error.message, line=error.line, column=error.column, hint=hint) from error
    while isinstance(found.expression, exp.Paren):
        found = Typed(found.expression.this, found.type)
    return found


def _check_group(found: Typed, *, numbers: bool) -> None:
    """Check a value to group by.

    Args:
        numbers: a number is a value, and no position of the SELECT list that was not taken for one.
    """
    line, place = position_of(found.expression)
    if not numbers and isinstance(found.expression, exp.Literal) and not found.expression.is_string:
        raise InvalidQuery(
            f"GROUP BY {sql_of(found.expression)} groups by a constant",
            line=line,
            column=place,
            hint="write the expression itself: positions of the SELECT list are not taken",
        )
    if any(not node.table and node.name in WINDOW_BOUNDS for node in found.expression.find_all(exp.Column)):
        raise InvalidQuery(
            f"GROUP BY {sql_of(found.expression)}: rows are grouped by their window already",
            line=line,
            column=place,
            hint="leave it out; WINDOWSTART and WINDOWEND can be selected",
        )
    if has_map(found.type) or found.type.base is BaseType.NULL:
        raise InvalidQuery(f"one cannot group by {found.type}", line=line, column=place)


# GROUPING: the columns that the grouping set of a row leaves out.
#
# SELECT a, b, GROUPING(a, b) AS g FROM s GROUP BY ROLLUP (a, b)
#
#     group  a, b      marks  __grouping_0, __grouping_1      g = __grouping_0 * 2 + __grouping_1
#
# The mark of a group column is 1 where the set of the row lacks it, so that its NULL is not taken for a value. After
# grouping a mark is a plain name, as WINDOWSTART is; under a plain GROUP BY there are none, and GROUPING is 0.

# Without arguments it is about all group columns, as in Spark; with some it is GROUPING.
_ALL = "GROUPING_ID"


def grouping_call(node: exp.Expression, typed: Infer, *, grouped: bool) -> Typed | None:
    """Elaborate the arguments of a call of GROUPING, which `over_marks` rewrites; return None for any other node.

    Raises:
        InvalidQuery: a query without GROUP BY, or no arguments.
    """
    if not isinstance(node, exp.Anonymous) or node.name not in OF_SETS:
        return None
    if not grouped or (not node.expressions and node.name != _ALL):
        raise InvalidQuery(
            f"{node.name} is about columns of GROUP BY", hint="SELECT a, GROUPING(a) … GROUP BY ROLLUP (a)"
        ).placed(*position_of(node))
    arguments = [typed(each).expression.unnest() for each in node.expressions]
    made = exp.Anonymous(this=node.name, expressions=arguments)
    made.meta.update(node.meta)
    return Typed(made, t.BIGINT)


def over_marks(node: exp.Expression, groups: Collection[str], *, sets: bool) -> exp.Expression:
    """Replace GROUPING by a number made of marks, the first argument's being the highest digit.

    Args:
        groups: the texts of the elaborated group expressions, in their order.
        sets: False under a plain GROUP BY.

    Raises:
        InvalidQuery: an argument is no group expression.
    """

    def change(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Anonymous) or part.name not in OF_SETS:
            return part
        asked = [_index(each, groups) for each in part.expressions] or list(range(len(groups)))
        if not sets or not asked:
            return mark_value(0)
        made: exp.Expression = column(mark_name(asked[0]))
        for index in asked[1:]:
            twice = exp.Mul(this=made, expression=exp.Literal.number(2))
            made = exp.Paren(this=exp.Add(this=twice, expression=column(mark_name(index))))
        return made

    made = node.copy().transform(change, copy=False)
    assert isinstance(made, exp.Expression)
    return made


def _index(node: exp.Expr, groups: Collection[str]) -> int:
    text = sql_of(node)
    if text not in groups:
        raise InvalidQuery(f"{text} is not among the expressions of GROUP BY").placed(*position_of(node))
    return list(groups).index(text)


# WINDOW and EMIT of a SELECT: the window of its groups, and the time that places a row in it.

# ksqlDB's default, for its statements: a row that is a day late is left out.
DEFAULT_GRACE = 24 * 60 * 60 * 1000


def read_window(
    select: exp.Select, inputs: Inputs, *, default_grace: int | None
) -> tuple[TimeWindow | None, exp.Expression | None]:
    """Read WINDOW: the window, and the column that gives the rows' time; both None without WINDOW.

    Args:
        default_grace: the grace when GRACE PERIOD is not given and the window is not EMIT FINAL.

    Raises:
        InvalidQuery: EMIT FINAL without a window; rows without a time; lengths that do not fit together.
    """
    node = select.args.get("time_window")
    emit = select.args.get("emit")
    final = emit is not None and emit.name == "FINAL"
    if node is None:
        if final:
            raise InvalidQuery("EMIT FINAL is for queries with WINDOW: others never end", hint="EMIT CHANGES")
        return None, None
    line, place = position_of(select)
    time = inputs.time()
    if time is None:
        names = ", ".join(repr(part.name) for part in inputs.parts)
        raise InvalidQuery(f"WINDOW places rows by their time, and those of {names} have none", line=line, column=place)
    size = milliseconds(node, "size") or 0
    advance = milliseconds(node, "advance") or size
    grace, retention = milliseconds(node, "grace"), milliseconds(node, "retention")
    if advance > size:
        raise InvalidQuery(
            "ADVANCE BY must not be more than SIZE: rows between the windows would belong to none",
            line=line,
            column=place,
        )
    if retention is not None and retention < size + (grace or 0):
        raise InvalidQuery("RETENTION must be at least SIZE and GRACE PERIOD together", line=line, column=place)
    if grace is None:
        grace = 0 if final else default_grace
    window_type = cast(Literal["tumbling", "hopping", "session"], node.name.lower())
    return TimeWindow(window_type, size, advance, grace, retention, final), time


# Scalar subqueries in HAVING and the clauses after it, joined with the groups.
#
# SELECT k, COUNT(*) AS c FROM s GROUP BY k HAVING COUNT(*) > (SELECT AVG(n) AS a FROM t)
#
# __g      SELECT k, COUNT(*) AS __a0 FROM s GROUP BY k          the groups, as a query of their own
# outside  SELECT __g.k, __g.__a0 AS c FROM __g, __s0 WHERE __g.__a0 > __s0.a

GROUPS = "__g"


def after_groups(block: Block, values: Sequence[From]) -> Block:
    """Move what HAVING, outputs or window functions compute with `values` into a query over the groups.

    Args:
        block: its clauses after grouping are over the names of groups and calls and the columns of `values`; so are
            the conditions of `values`.
    """
    assert block.group is not None
    shown = [*block.group, *(Output(call.name, column(call.name), call.type) for call in block.calls)]
    shown += (*(BOUNDS if block.window is not None else ()), *mark_outputs(block))
    early = tuple(each for each in block.inputs if each.alias not in {value.alias for value in values})
    read_before = _read_before(block, early)
    early = tuple(each for each in block.inputs if each in early or each.alias in read_before)
    groups = Block(
        inputs=early,
        where=block.where,
        outputs=tuple(replace(each, expression=column(each.name)) for each in shown),
        expand=block.expand,
        window=block.window,
        time=block.time,
        group=block.group,
        sets=block.sets,
        calls=block.calls,
        key=() if block.sets or block.window is not None else tuple(key.name for key in block.group),
    )
    return Block(
        inputs=(From(GROUPS, groups), *(replace(each, on=_outside_or_none(each.on)) for each in values)),
        where=_outside_or_none(block.having),
        outputs=tuple(replace(each, expression=_outside(each.expression)) for each in block.outputs),
        partition=tuple(_outside(node) for node in block.partition),
        analytic=tuple(
            replace(
                call,
                arguments=tuple(_outside(node) for node in call.arguments),
                order=tuple((_outside(node), down, first) for node, down, first in call.order),
            )
            for call in block.analytic
        ),
        qualify=_outside_or_none(block.qualify),
        distinct=block.distinct,
        key=block.key,
        unseen_key=block.unseen_key,
    )


def _read_before(block: Block, early: Sequence[From]) -> set[str]:
    """The aliases of the values that are read before rows are grouped as well: by WHERE, a group, a call or the
    condition of another input."""
    nodes = [block.where, *(each.on for each in early), *(each.expression for each in block.group or ())]
    nodes += [node for call in block.calls for node in (*call.arguments, call.filter)]
    return {alias for node in nodes if node is not None for alias in aliases(node)}


def _outside_or_none(node: exp.Expression | None) -> exp.Expression | None:
    return _outside(node) if node is not None else None


def _outside(node: exp.Expression) -> exp.Expression:
    """An expression over groups and calls, rewritten over the columns of `__g`; analytic calls keep their names."""

    def qualified(each: exp.Expr) -> exp.Expr:
        plain = isinstance(each, exp.Column) and not each.table and not each.name.startswith("__w")
        return column(each.name, GROUPS) if plain else each

    made = node.copy().transform(qualified)
    assert isinstance(made, exp.Expression)
    return made
