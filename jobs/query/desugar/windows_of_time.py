"""TUMBLE and HOP in FROM: the rows of a table with the windows of time that they fall into.

    FROM TUMBLE(s, at, INTERVAL '1' HOUR)                       SELECT *, … AS window_start, … AS window_end FROM s
    FROM HOP(s, at, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)     the same, a row for each window that holds `at`

The bounds are TIMESTAMPs. Windows begin at 0, as Kafka's do; no row is ever late, since they are columns like others.
WINDOW TUMBLING and its like are the ones that close.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.model.errors import InvalidQuery, NotSupported
from jobs.sql.dialect import position_of, sql_of
from jobs.sql.intervals import IntervalNode
from jobs.sql.trees import call, identifier

START, END = "window_start", "window_end"
_FORMS = {
    "TUMBLE": "TUMBLE(table, column, INTERVAL '1' HOUR)",
    "HOP": "HOP(table, column, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)",
}
_LENGTHS = {"TUMBLE": 1, "HOP": 2}
# Each window of a HOP makes a copy of every row.
_MOST_WINDOWS = 1000


def window_function(table: exp.Expr) -> exp.Subquery | None:
    """The subquery that TUMBLE or HOP in FROM stands for; None for anything else.

    Raises:
        InvalidQuery: the arguments are others.
        NotSupported: SESSION, whose windows depend on the rows around.
    """
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous):
        return None
    line, column = position_of(function)
    if function.name == "SESSION":
        raise NotSupported(
            "SESSION in FROM is not supported yet", line=line, column=column, hint="WINDOW SESSION (5 MINUTES)"
        )
    if function.name not in _FORMS:
        return None
    source, time = (*function.expressions, None, None)[:2]
    sizes = [_milliseconds(each) for each in function.expressions[2:]]
    named = isinstance(source, exp.Column) and isinstance(time, exp.Column)
    if not named or len(sizes) != _LENGTHS[function.name] or not all(sizes):
        raise InvalidQuery(
            f"{sql_of(function)}: a table, a column and lengths without months",
            line=line,
            column=column,
            hint=_FORMS[function.name],
        )
    step, size = sizes[0] or 0, sizes[-1] or 0
    if size % step or size // step > _MOST_WINDOWS:
        raise InvalidQuery(
            f"{function.name}: the size must be a multiple of the step, and of at most {_MOST_WINDOWS} steps",
            line=line,
            column=column,
        )
    assert isinstance(source, exp.Column)
    assert isinstance(time, exp.Column)
    select = exp.Select(
        expressions=[exp.Star(), *_bounds(time, step, size)], from_=exp.From(this=exp.Table(this=source.this.copy()))
    )
    made = exp.Subquery(this=_ended(select, size) if step != size else select)
    alias = table.args.get("alias") or exp.TableAlias(this=identifier(source.name))
    made.set("alias", alias.copy())
    return made


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
