"""TUMBLE, HOP and SESSION in FROM: the rows of a table with the windows of time that they fall into.

    FROM TUMBLE(s, at, INTERVAL '1' HOUR)                       SELECT *, … AS window_start, … AS window_end FROM s
    FROM HOP(s, at, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)     the same, a row for each window that holds `at`
    FROM SESSION(s, at, INTERVAL '5' MINUTE, k)                 the same with the session of `k`: `sessions`

The bounds are TIMESTAMPs. Windows begin at 0, as Kafka's do; no row is ever late, since they are columns like others.
A row whose time is NULL is in no window.
WINDOW TUMBLING and its like are the ones that close.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.query.desugar.sessions import sessions
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.intervals import IntervalNode
from strandline.jobs.sql.trees import call, identifier, is_not_null

START, END = "window_start", "window_end"
_FORMS = {
    "TUMBLE": "TUMBLE(table, column, INTERVAL '1' HOUR)",
    "HOP": "HOP(table, column, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)",
    "SESSION": "SESSION(table, column, INTERVAL '5' MINUTE, key_column)",
}
_LENGTHS = {"TUMBLE": 1, "HOP": 2, "SESSION": 1}
# Each window of a HOP makes a copy of every row.
_MOST_WINDOWS = 1000


def window_function(table: exp.Expr) -> exp.Subquery | None:
    """The subquery that TUMBLE, HOP or SESSION in FROM stands for; None for anything else.

    Raises:
        InvalidQuery: the arguments are others.
    """
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous) or function.name not in _FORMS:
        return None
    name, arguments = function.name, function.expressions
    columns = [each for each in arguments if isinstance(each, exp.Column)]
    lengths = [_milliseconds(each) for each in arguments[2 : 2 + _LENGTHS[name]]]
    keys = columns[2:]
    fits = arguments[:2] == columns[:2] and len(columns) >= 2 and arguments[2 + _LENGTHS[name] :] == keys
    if not fits or len(lengths) != _LENGTHS[name] or not all(lengths) or (keys and name != "SESSION"):
        line, column = position_of(function)
        raise InvalidQuery(
            f"{sql_of(function)}: a table, a column and lengths without months",
            line=line,
            column=column,
            hint=_FORMS[name],
        )
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
        line, column = position_of(function)
        raise InvalidQuery(
            f"{function.name}: the size must be a multiple of the step, and of at most {_MOST_WINDOWS} steps",
            line=line,
            column=column,
        )
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
    positive = exp.Mod(this=exp.Paren(this=exp.Add(this=rest, expression=_number(step))), expression=_number(step))
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


def _number(value: int) -> exp.Expression:
    return exp.Literal.number(value)


def _milliseconds(node: exp.Expr | None) -> int | None:
    if not isinstance(node, IntervalNode):
        return None
    months, milliseconds = node.parts
    return milliseconds if not months and milliseconds > 0 else None
