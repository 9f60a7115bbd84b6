"""What FROM reads beside tables and subqueries: UNNEST, VALUES, GENERATE_SERIES, RANGE, TUMBLE, HOP and SESSION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import ITEM, Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.nested import items_of
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import FromItem, Inputs
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.time_clauses import IntervalNode
from strandline.jobs.sql.trees import call, identifier, is_not_null

# UNNEST in FROM: the items of arrays as rows, each beside the row that the arrays are of.
#
#     FROM s CROSS JOIN UNNEST(s.tags) WITH ORDINALITY AS u (tag, place)
#
#         expand  __u0 = s.tags        u.tag reads __u0        u.place reads the item's number, from 1
#
# Several arrays stand side by side, the shorter ones padded with NULL. LEFT JOIN UNNEST(…) ON TRUE keeps a row without
# items, with NULL in their place.


UNNEST = "unnest"
"""The name of an UNNEST that has no other."""
NOWHERE = Relation("", (), "keyed")
"""What an UNNEST reads: no relation of its own."""


@dataclass(frozen=True)
class Unnest:
    """An UNNEST as an input.

    Attributes:
        part: its columns, which read the items.
        expand: the arrays, each under the name of its items' column.
    """

    part: FromItem
    expand: tuple[Output, ...]


def is_unnest(table: exp.Expr) -> TypeGuard[exp.Table]:
    """True if a table in FROM is UNNEST(…)."""
    return isinstance(table, exp.Table) and isinstance(table.this, exp.Anonymous) and table.this.name == "UNNEST"


def unnest_alias(table: exp.Expr) -> str:
    """Alias of an UNNEST."""
    return table.alias or UNNEST


def read_unnest(table: exp.Table, join: exp.Join | None, before: Inputs) -> Unnest:
    """Read an UNNEST, whose arrays are over the inputs before it.

    Args:
        join: the node that joins it; None for the first of FROM.

    Raises:
        TypeMismatch: an argument is no array.
        InvalidQuery: other columns are named than it has.
        NotSupported: a join that drops rows by a condition of its own, or keeps those of UNNEST.
    """
    kept = _keeps_rows(join)
    arrays = [_array(node, table, before) for node in table.this.expressions]
    numbered = bool(table.args.get("ordinality"))
    names = _names(table, len(arrays), numbered=numbered)
    if kept:
        # A row that is kept without items has no number either.
        numbers = [_numbers(arrays, before)] if numbered else []
        arrays = [*(_or_null(each, call("ARRAY_LENGTH", each.expression)) for each in arrays), *numbers]
    expand = tuple(Output(f"__u{n}", each.expression, each.type.args[0]) for n, each in enumerate(arrays))
    read = {name: column(each.name) for name, each in zip(names, expand, strict=False)}
    types = {name: each.type for name, each in zip(names, expand, strict=False)}
    if numbered and not kept:
        read[names[-1]], types[names[-1]] = column(ITEM), t.INT
    return Unnest(FromItem(unnest_alias(table), UNNEST, NOWHERE, tuple(types.items()), {}, read=read), expand)


def _names(table: exp.Table, arrays: int, *, numbered: bool) -> list[str]:
    """The names of the columns: those in brackets after the alias, the others made up."""
    alias = unnest_alias(table)
    given = [each.name for each in table.args["alias"].args.get("columns") or ()] if table.args.get("alias") else []
    if not arrays or len(given) > arrays + numbered:
        raise InvalidQuery(
            f"{sql_of(table)} has {arrays + numbered} columns, and {len(given)} names are given",
            hint="UNNEST(array) AS name (column)",
        ).placed(*position_of(table))
    made_up = [alias] if arrays == 1 else [f"{alias}_{number}" for number in range(1, arrays + 1)]
    every = [*made_up, *(["ordinality"] if numbered else [])]
    names = [*given, *every[len(given) :]]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise InvalidQuery(f"two columns of {sql_of(table)} are named '{twice}'").placed(*position_of(table))
    return names


def _keeps_rows(join: exp.Join | None) -> bool:
    """True if a row without items stays: LEFT JOIN … ON TRUE."""
    if join is None:
        return False
    on, side = join.args.get("on"), join.side
    always = on is None or (isinstance(on, exp.Boolean) and on.this)
    if side not in ("", "LEFT") or join.method or join.args.get("using") or not always:
        raise NotSupported(
            f"UNNEST is joined by a comma, CROSS JOIN, or LEFT JOIN … ON TRUE: {sql_of(join)}",
            hint="put the condition into WHERE",
        ).placed(*position_of(join))
    return bool(side)


def _array(node: exp.Expr, table: exp.Table, before: Inputs) -> Typed:
    try:
        return items_of(call("UNNEST", node), lambda each: infer(each, before))
    except SqlError as error:
        raise error.placed(*position_of(table)) from None


def _numbers(arrays: list[Typed], before: Inputs) -> Typed:
    """The numbers of the items, as one more array; one NULL where no array has any."""
    lengths = [call("ARRAY_LENGTH", each.expression) for each in arrays]
    longest = infer(lengths[0] if len(lengths) == 1 else call("GREATEST", *lengths), before).expression
    numbers = infer(call("GENERATE_SERIES", exp.Literal.number(1), longest), before)
    return _or_null(numbers, longest)


def _or_null(array: Typed, length: exp.Expression) -> Typed:
    """An array with one item that is NULL in place of none."""
    nothing = exp.Cast(this=exp.Null(), to=data_type(array.type.args[0]))
    some = exp.GT(this=length.copy(), expression=exp.Literal.number(0))
    made = exp.Case(ifs=[exp.If(this=some, true=array.expression)], default=exp.Array(expressions=[nothing]))
    return Typed(made, array.type)


# VALUES in FROM: a query without FROM, whose arrays become rows.
#
#     FROM (VALUES (1, 'a'), (2, 'b')) AS v (x, y)
#
#     FROM (SELECT EXPLODE(ARRAY[1, 2]) AS column1, EXPLODE(ARRAY['a', 'b']) AS column2) AS v (x, y)
#
# Arrays side by side share rows, so the first items of all columns are the first row.


def constant_rows(table: exp.Expr) -> exp.Subquery | None:
    """Rewrite VALUES as a subquery; return None for anything else.

    Raises:
        InvalidQuery: its rows have different lengths.
    """
    if not isinstance(table, exp.Values):
        return None
    rows = [row.expressions for row in table.expressions]
    line, column = position_of(table)
    wrong = next((row for row in rows if len(row) != len(rows[0])), None)
    if wrong is not None:
        raise InvalidQuery(
            f"VALUES has a row of {len(rows[0])} values and one of {len(wrong)}", line=line, column=column
        )
    items: list[exp.Expr] = []
    for place, values in enumerate(zip(*rows, strict=True), 1):
        array = exp.Array(expressions=[value.copy() for value in values])
        items.append(exp.Alias(this=call("EXPLODE", array), alias=identifier(f"column{place}")))
    return exp.Subquery(this=exp.Select(expressions=items), alias=table.args["alias"].copy())


# GENERATE_SERIES and RANGE in FROM: a row for each number.
#
#     FROM GENERATE_SERIES(1, 5) AS g (n)     FROM UNNEST(GENERATE_SERIES(1, 5)) AS g (n)
#     FROM RANGE(5) AS r (n)                  0, 1, 2, 3, 4: the end is none of them
#
# Where the end lies before the beginning there are no rows; the scalar function counts down there, as ksqlDB's does.

_SERIES_FORMS = {"GENERATE_SERIES": "GENERATE_SERIES(from, to [, step])", "RANGE": "RANGE([from,] end [, step])"}


def series(table: exp.Expr) -> exp.Expr:
    """Rewrite GENERATE_SERIES or RANGE as an UNNEST; leave anything else as it is.

    Raises:
        InvalidQuery: it has other arguments.
    """
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous) or function.name not in _SERIES_FORMS:
        return table
    bounds = list(function.expressions)
    if function.name == "RANGE" and len(bounds) == 1:
        bounds = [exp.Literal.number(0), *bounds]
    step = _whole(bounds[2]) if len(bounds) == 3 else 1
    if not 2 <= len(bounds) <= 3 or not step:
        raise InvalidQuery(
            f"{sql_of(function)}: whole numbers, the step a constant but 0", hint=_SERIES_FORMS[function.name]
        ).placed(*position_of(table))
    begin, end = bounds[:2]
    if function.name == "RANGE":
        number = _whole(end)
        before = -1 if step > 0 else 1
        end = (
            _number(number + before)
            if number is not None
            else exp.Add(this=exp.Paren(this=end.copy()), expression=_number(before))
        )
    made = table.copy()
    made.set("this", call("UNNEST", _numbers_between(begin, end, step)))
    if not table.alias:
        made.set("alias", exp.TableAlias(this=identifier(function.name.lower())))
    return made


def _numbers_between(begin: exp.Expr, end: exp.Expr, step: int) -> exp.Expression:
    """The array of the numbers; NULL, which has no items, where there are none."""
    sides = [exp.Paren(this=side.copy()) for side in (begin, end)]
    there = (exp.LTE if step > 0 else exp.GTE)(this=sides[0], expression=sides[1])
    every = call("GENERATE_SERIES", begin, end, _number(step))
    return exp.Case(ifs=[exp.If(this=there, true=every)])


def _whole(node: exp.Expr) -> int | None:
    negative = isinstance(node, exp.Neg)
    number = node.this if negative else node
    if not isinstance(number, exp.Literal) or not number.is_int:
        return None
    return -int(number.name) if negative else int(number.name)


def _number(value: int) -> exp.Expression:
    size = exp.Literal.number(abs(value))
    return exp.Neg(this=size) if value < 0 else size


# TUMBLE, HOP and SESSION in FROM: the rows of a table with the windows of time that they fall into.
#
#     FROM TUMBLE(s, at, INTERVAL '1' HOUR)                       SELECT *, … AS window_start, … AS window_end FROM s
#     FROM HOP(s, at, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)     the same, a row for each window that holds `at`
#     FROM SESSION(s, at, INTERVAL '5' MINUTE, k)                 the same with the session of `k`: `sessions`
#
# The bounds are TIMESTAMPs. Windows begin at 0, as Kafka's do; no row is ever late, since they are columns like others.
# A row whose time is NULL is in no window.
# WINDOW TUMBLING and its like are the ones that close.

START, END = "window_start", "window_end"
_WINDOW_FORMS = {
    "TUMBLE": "TUMBLE(table, column, INTERVAL '1' HOUR)",
    "HOP": "HOP(table, column, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)",
    "SESSION": "SESSION(table, column, INTERVAL '5' MINUTE, key_column)",
}
_LENGTHS = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
# Each window of a HOP makes a copy of every row.
_MOST_WINDOWS = 1000


def window_function(table: exp.Expr) -> exp.Subquery | None:
    """Rewrite TUMBLE, HOP or SESSION as a subquery; return None for anything else.

    Raises:
        InvalidQuery: the arguments are others.
    """
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous) or function.name not in _WINDOW_FORMS:
        return None
    name, arguments = function.name, function.expressions
    columns = [each for each in arguments if isinstance(each, exp.Column)]
    lengths = [_milliseconds(each) for each in arguments[2 : 2 + _LENGTHS[name]]]
    keys = columns[2:]
    fits = arguments[:2] == columns[:2] and len(columns) >= 2 and arguments[2 + _LENGTHS[name] :] == keys
    if not fits or len(lengths) != _LENGTHS[name] or not all(lengths) or (keys and name != "SESSION"):
        raise InvalidQuery(
            f"{sql_of(function)}: a table, a column and lengths without months", hint=_WINDOW_FORMS[name]
        ).placed(*position_of(function))
    source, time = columns[:2]
    sizes = [each or 0 for each in lengths]
    if name == "SESSION":
        select = sessions(source, time, sizes[0], keys, (START, END))
    else:
        select = _windows(function, source, time, sizes)
    alias = table.args.get("alias") or exp.TableAlias(this=identifier(source.name))
    return exp.Subquery(this=select, alias=alias.copy())


def _windows(function: exp.Anonymous, source: exp.Column, time: exp.Column, sizes: list[int]) -> exp.Select:
    """The rows of a table, once for each window of one length that holds the time."""
    step, size = sizes[0], sizes[-1]
    if size % step or size // step > _MOST_WINDOWS:
        raise InvalidQuery(
            f"{function.name}: the size must be a multiple of the step, and of at most {_MOST_WINDOWS} steps"
        ).placed(*position_of(function))
    select = exp.Select(
        expressions=[exp.Star(), *_bounds(time, step, size)],
        from_=exp.From(this=exp.Table(this=source.this.copy())),
        where=exp.Where(this=is_not_null(time)),
    )
    return _ended(select, size) if step != size else select


def _bounds(time: exp.Column, step: int, size: int) -> list[exp.Expr]:
    """The columns of the bounds of a TUMBLE; for a HOP the start alone, in milliseconds, a row for each."""
    last = _last_start(call("UNIX_TIMESTAMP", time), step)
    if step == size:
        end = exp.Add(this=last.copy(), expression=_number(size))
        return [_named(START, call("FROM_UNIXTIME", last)), _named(END, call("FROM_UNIXTIME", end))]
    starts = [exp.Sub(this=last.copy(), expression=_number(place * step)) for place in range(size // step)]
    return [_named(START, call("EXPLODE", exp.Array(expressions=starts)))]


def _last_start(millis: exp.Expression, step: int) -> exp.Expression:
    """The greatest multiple of the step that is not above the time, also before 1970."""
    rest = exp.Mod(this=millis.copy(), expression=_number(step))
    positive = exp.Mod(
        this=exp.Paren(this=exp.Add(this=rest, expression=_number(step))),
        expression=_number(step),
    )
    return exp.Paren(this=exp.Sub(this=millis, expression=exp.Paren(this=positive)))


def _ended(select: exp.Select, size: int) -> exp.Select:
    """The windows of a HOP, whose starts are milliseconds, with both bounds as TIMESTAMPs."""
    inner = exp.Subquery(this=select, alias=exp.TableAlias(this=identifier("hops")))
    start = exp.Column(this=identifier(START))
    end = exp.Add(this=start.copy(), expression=_number(size))
    star = exp.Star(replace=[_named(START, call("FROM_UNIXTIME", start))])
    return exp.Select(expressions=[star, _named(END, call("FROM_UNIXTIME", end))], from_=exp.From(this=inner))


def _named(name: str, value: exp.Expr) -> exp.Alias:
    return exp.Alias(this=value, alias=identifier(name))


def _milliseconds(node: exp.Expr | None) -> int | None:
    if not isinstance(node, IntervalNode):
        return None
    months, milliseconds = node.parts
    return milliseconds if not months and milliseconds > 0 else None


# SESSION in FROM: the rows of a table with the session of time that each falls into.
#
#     FROM SESSION(s, at, INTERVAL '5' MINUTE, k)
#
#     1  SELECT *, at in milliseconds, 0 where at most the gap has passed since the row of k before, else 1
#        FROM s WHERE at IS NOT NULL
#     2  SELECT *, how many have begun up to this row: the number of its session                              FROM 1
#     3  SELECT *, the least time of the session AS window_start, the greatest and the gap AS window_end      FROM 2
#
# As in WINDOW SESSION, rows as far apart as the gap are still one session. Without columns after the gap all rows are
# of one key. A row that joins two sessions, or parts one by going, changes the bounds of the others.

# Names that no user gives a column by chance; two columns of one name are refused in any case.
_TIME, _BEGINS, _NUMBER = "session_time_ms", "session_begins", "session_number"


def sessions(
    source: exp.Column, time: exp.Column, gap: int, keys: Sequence[exp.Column], bounds: tuple[str, str]
) -> exp.Select:
    """Select the rows of a table with the bounds of their sessions.

    Args:
        gap: milliseconds.
        bounds: the names of their columns, which are TIMESTAMPs.
    """
    at = call("UNIX_TIMESTAMP", time)
    before = _over(call("LAG", at), keys, [at])
    near = exp.LTE(this=exp.Sub(this=at.copy(), expression=before), expression=exp.Literal.number(gap))
    begins = exp.Case(ifs=[exp.If(this=near, true=exp.Literal.number(0))], default=exp.Literal.number(1))
    first = _with(exp.Table(this=source.this.copy()), exp.Star(), {_TIME: at, _BEGINS: begins})
    first.set("where", exp.Where(this=is_not_null(time)))
    begun = _over(call("SUM", _column(_BEGINS)), keys, [_column(_TIME)])
    second = _with(_inside(first), exp.Star(), {_NUMBER: begun})
    session = [*keys, _column(_NUMBER)]
    start = _over(call("MIN", _column(_TIME)), session, [])
    end = exp.Add(this=_over(call("MAX", _column(_TIME)), session, []), expression=exp.Literal.number(gap))
    shown = exp.Star(except_=[identifier(name) for name in (_TIME, _BEGINS, _NUMBER)])
    values = {name: call("FROM_UNIXTIME", value) for name, value in zip(bounds, (start, end), strict=True)}
    return _with(_inside(second), shown, values)


def _with(source: exp.Expr, star: exp.Star, more: Mapping[str, exp.Expression]) -> exp.Select:
    """SELECT of a star and more values, each with a name."""
    items = [exp.Alias(this=value, alias=identifier(name)) for name, value in more.items()]
    return exp.Select(expressions=[star, *items], from_=exp.From(this=source))


def _inside(select: exp.Select) -> exp.Subquery:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=identifier("rows")))


def _over(function: exp.Expression, partition: Sequence[exp.Column], order: Sequence[exp.Expression]) -> exp.Window:
    ordered = [exp.Ordered(this=each.copy()) for each in order]
    by = exp.Order(expressions=ordered) if ordered else None
    return exp.Window(this=function, partition_by=[each.copy() for each in partition], order=by, over="OVER")


def _column(name: str) -> exp.Column:
    return exp.Column(this=identifier(name))
