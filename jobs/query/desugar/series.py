"""GENERATE_SERIES and RANGE in FROM: a row for each number.

    FROM GENERATE_SERIES(1, 5) AS g (n)     FROM UNNEST(GENERATE_SERIES(1, 5)) AS g (n)
    FROM RANGE(5) AS r (n)                  0, 1, 2, 3, 4: the end is none of them

Where the end lies before the beginning there are no rows; the scalar function counts down there, as ksqlDB's does.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import call, identifier

_FORMS = {"GENERATE_SERIES": "GENERATE_SERIES(from, to [, step])", "RANGE": "RANGE([from,] end [, step])"}


def series(table: exp.Expr) -> exp.Expr:
    """The UNNEST that a series in FROM stands for; anything else stays as it is.

    Raises:
        InvalidQuery: it has other arguments.
    """
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous) or function.name not in _FORMS:
        return table
    bounds = list(function.expressions)
    if function.name == "RANGE" and len(bounds) == 1:
        bounds = [exp.Literal.number(0), *bounds]
    step = _whole(bounds[2]) if len(bounds) == 3 else 1
    if not 2 <= len(bounds) <= 3 or not step:
        line, column = position_of(table)
        raise InvalidQuery(
            f"{sql_of(function)}: whole numbers, the step a constant but 0",
            line=line,
            column=column,
            hint=_FORMS[function.name],
        )
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
    made.set("this", call("UNNEST", _numbers(begin, end, step)))
    if not table.alias:
        made.set("alias", exp.TableAlias(this=identifier(function.name.lower())))
    return made


def _numbers(begin: exp.Expr, end: exp.Expr, step: int) -> exp.Expression:
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
