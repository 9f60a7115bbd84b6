"""SESSION in FROM: the rows of a table with the session of time that each falls into.

    FROM SESSION(s, at, INTERVAL '5' MINUTE, k)

    1  SELECT *, at in milliseconds, 0 where at most the gap has passed since the row of k before, else 1
       FROM s WHERE at IS NOT NULL
    2  SELECT *, how many have begun up to this row: the number of its session                              FROM 1
    3  SELECT *, the least time of the session AS window_start, the greatest and the gap AS window_end      FROM 2

As in WINDOW SESSION, rows as far apart as the gap are still one session. Without columns after the gap all rows are of
one key. A row that joins two sessions, or parts one by going, changes the bounds of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from strandline.jobs.sql.trees import call, identifier, is_not_null

# Names that no user gives a column by chance; two columns of one name are refused in any case.
_TIME, _BEGINS, _NUMBER = "session_time_ms", "session_begins", "session_number"


def sessions(
    source: exp.Column, time: exp.Column, gap: int, keys: Sequence[exp.Column], bounds: tuple[str, str]
) -> exp.Select:
    """The rows of a table with the bounds of their sessions.

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
