"""GROUP BY: the group expressions, the grouping sets, and expressions over groups and calls.

SELECT area, SUM(a) / COUNT(*) + SUM(a) AS x FROM s GROUP BY area

    group  area = s.area        calls  __a0 = SUM(s.a), __a1 = COUNT(*)        x = __a0 / __a1 + __a0

GROUP BY ROLLUP (a, b), GROUPING SETS ((c), ())
    group  a, b, c              sets   (a, b, c), (a, b), (a, c), (a), (c), ()

GROUP BY a, b WITH ROLLUP       is GROUP BY ROLLUP (a, b)
GROUP BY ALL                    is GROUP BY what the SELECT list does not aggregate
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model.columns import WINDOW_BOUNDS
from strandline.jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.clauses.aggregate_calls import Calls
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical.inputs import Inputs
from strandline.jobs.query.pulled.ordering import place_of
from strandline.jobs.sql.dialect import position_of, sql_of

_MOST_SETS = 128
"""The limit on grouping sets, a CUBE over seven columns: each set makes a copy of every row."""


def read_groups(
    select: exp.Select,
    inputs: Inputs,
    outputs: tuple[Output, ...],
    calls: Calls,
    *,
    constants: bool,
    selected: bool = False,
) -> tuple[tuple[Typed, ...], tuple[tuple[int, ...], ...]] | None:
    """The group expressions, each once, and the grouping sets as indexes into them; no sets for a plain GROUP BY.

    Args:
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
        return _all_groups(outputs, calls, constants=constants), ()
    if not clause.expressions:
        raise InvalidQuery("GROUP BY names nothing", hint="GROUP BY a, b; GROUP BY () is one group of all rows")
    found: dict[str, Typed] = {}

    def number(node: exp.Expr) -> int:
        group = (_selected(node, inputs, outputs) if selected else None) or _group(node, inputs, outputs)
        _check_group(group, constants=constants)
        found.setdefault(sql_of(group.expression), group)
        return list(found).index(sql_of(group.expression))

    choices = [_sets(node, number) for node in _items(clause)]
    sets = [tuple(sorted({n for part in each for n in part})) for each in product(*choices)]
    if len(sets) > _MOST_SETS:
        line, place = position_of(clause)
        raise InvalidQuery(
            f"GROUP BY asks for {len(sets)} grouping sets, and {_MOST_SETS} is the most", line=line, column=place
        )
    if sets == [tuple(range(len(found)))]:
        return tuple(found.values()), ()
    if constants:
        line, place = position_of(clause)
        raise NotSupported(
            "GROUPING SETS, ROLLUP and CUBE are SQL's: ksqlDB has none, so SEMANTICS = 'ksql' says nothing of them",
            line=line,
            column=place,
            hint="leave SEMANTICS out",
        )
    return tuple(found.values()), tuple(sets)


def _all_groups(outputs: tuple[Output, ...], calls: Calls, *, constants: bool) -> tuple[Typed, ...]:
    """GROUP BY ALL: what the SELECT list has of columns that are not aggregated, each once; constants are no groups."""
    found: dict[str, Typed] = {}
    for output in outputs:
        expression = output.expression.unnest()
        columns = list(expression.find_all(exp.Column))
        # The value of a function OVER a window, and a bound of the row's own, have no input before them.
        of_rows = bool(columns) and all(node.table for node in columns)
        if of_rows and not any(calls.call_of(node) is not None for node in expression.walk()):
            assert isinstance(expression, exp.Expression)
            group = Typed(expression, output.type)
            _check_group(group, constants=constants)
            found.setdefault(sql_of(expression), group)
    return tuple(found.values())


def named_groups(groups: tuple[Typed, ...], outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """The groups with names: that of the first output with the same expression, or else `__k0`, …."""
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
    """An elaborated expression over the inputs, rewritten over the names of groups and calls.

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
        line, place = position_of(node)
        raise InvalidQuery(
            f"column '{node.name}' is neither grouped by nor aggregated",
            line=line,
            column=place,
            hint=f"add it to GROUP BY, or say which of its values: LATEST_BY_OFFSET({node.name})",
        )
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
        line, place = position_of(clause)
        raise InvalidQuery(
            f"WITH {ways[0].key.upper()} is about all of GROUP BY: it stands with plain expressions alone",
            line=line,
            column=place,
            hint="GROUP BY ROLLUP (a, b), CUBE (c, d)",
        )
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
    """One grouping set, written `a`, `(a, b)` or `()`."""
    if isinstance(node, exp.Tuple):
        return tuple(number(item) for item in node.expressions)
    return (number(node),)


def _joined(items: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(n for item in items for n in item)


def _selected(node: exp.Expr, inputs: Inputs, outputs: tuple[Output, ...]) -> Typed | None:
    """The value of the SELECT list that a position or a name stands for; None for anything else."""
    found: exp.Expression | None = None
    if isinstance(node, exp.Literal) and node.is_int:
        found = outputs[place_of(node, len(outputs), "GROUP BY")].expression
    elif isinstance(node, exp.Column) and not node.table and inputs.find(node) is None:
        found = next((output.expression for output in outputs if output.name == node.name), None)
    # Read once more, without aggregates: nothing is grouped by those.
    return infer(found, inputs) if found is not None else None


def _group(node: exp.Expr, inputs: Inputs, outputs: tuple[Output, ...]) -> Typed:
    try:
        found = infer(node, inputs)
    except UnknownName as error:
        named = next((output for output in outputs if output.name == node.name), None)
        if named is None or not isinstance(node, exp.Column):
            raise
        hint = f"GROUP BY reads the input, not the SELECT list: GROUP BY {inputs.words(named.expression)}"
        raise UnknownName(error.message, line=error.line, column=error.column, hint=hint) from error
    while isinstance(found.expression, exp.Paren):
        found = Typed(found.expression.this, found.type)
    return found


def _check_group(found: Typed, *, constants: bool) -> None:
    line, place = position_of(found.expression)
    if not constants and not any(isinstance(node, exp.Column) for node in found.expression.walk()):
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
