"""GROUPING: the columns that the grouping set of a row leaves out.

SELECT a, b, GROUPING(a, b) AS g FROM s GROUP BY ROLLUP (a, b)

    group  a, b      marks  __grouping_0, __grouping_1      g = __grouping_0 * 2 + __grouping_1

The mark of a group column is 1 where the set of the row lacks it, so that its NULL is not taken for a value. After
grouping a mark is a plain name, as WINDOWSTART is; under a plain GROUP BY there are none, and GROUPING is 0.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.query.expressions.infer import OF_SETS
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.query.logical.group_columns import mark_name, mark_value
from strandline.jobs.sql.dialect import position_of, sql_of

# Without arguments it is about all group columns, as in Spark; with some it is GROUPING.
_ALL = "GROUPING_ID"


def grouping_call(node: exp.Expression, typed: Infer, *, grouped: bool) -> Typed | None:
    """A call of GROUPING with its arguments elaborated, to be rewritten by `over_marks`; None for any other node.

    Raises:
        InvalidQuery: a query without GROUP BY, or no arguments.
    """
    if not isinstance(node, exp.Anonymous) or node.name not in OF_SETS:
        return None
    if not grouped or (not node.expressions and node.name != _ALL):
        line, place = position_of(node)
        raise InvalidQuery(
            f"{node.name} is about columns of GROUP BY",
            line=line,
            column=place,
            hint="SELECT a, GROUPING(a) … GROUP BY ROLLUP (a)",
        )
    arguments = [typed(each).expression.unnest() for each in node.expressions]
    made = exp.Anonymous(this=node.name, expressions=arguments)
    made.meta.update(node.meta)
    return Typed(made, t.BIGINT)


def over_marks(node: exp.Expression, groups: Collection[str], *, sets: bool) -> exp.Expression:
    """A copy of an elaborated expression with GROUPING as a number of marks, the first argument's the highest.

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
        line, place = position_of(node)
        raise InvalidQuery(f"{text} is not among the expressions of GROUP BY", line=line, column=place)
    return list(groups).index(text)
