"""ASOF JOIN: of the rows that match, the nearest one.

    FROM trades AS t ASOF JOIN quotes AS q ON t.symbol = q.symbol AND t.at >= q.at

    FROM trades AS t JOIN quotes AS q ON t.symbol = q.symbol AND t.at >= q.at
    QUALIFY ROW_NUMBER() OVER (PARTITION BY the row of t ORDER BY q.at DESC) = 1

With ASOF LEFT JOIN a row without a match stays. Of two rows that are equally near, the one with the smaller key is
taken. A row that comes late, or is corrected, changes the matches that it should have changed: each touched row of the
left side is matched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.calls import AnalyticCall
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.types import BIGINT
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical.conditions import aliases
from strandline.jobs.query.logical.keys import identity
from strandline.jobs.query.logical.query import Block, From
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import conjuncts

_NUMBER = "__w0"
# The comparison, seen from the left side, whose nearest value is the greatest one; and the same, turned around.
_BELOW = (exp.GTE, exp.GT)
_ABOVE = (exp.LTE, exp.LT)


def asof_block(froms: Sequence[From], right: From, node: exp.Join) -> Block:
    """The query of the rows so far with the nearest row of `right` each; without outputs.

    Raises:
        InvalidQuery: the condition has no inequality, or several.
        NotSupported: it keeps rows of the right side, or the rows of the left side cannot be told apart.
    """
    line, place = position_of(node)
    if right.join not in ("inner", "left"):
        raise NotSupported("ASOF RIGHT and FULL JOIN are not supported", line=line, column=place)
    nearest = [each for each in conjuncts(right.on) if isinstance(each, (*_BELOW, *_ABOVE))]
    found = [side for each in nearest if (side := _own_side(each, right.alias)) is not None]
    if len(nearest) != 1 or not found:
        raise InvalidQuery(
            f"ASOF JOIN takes one inequality between the sides, not {len(nearest)}: {sql_of(node)}",
            line=line,
            column=place,
            hint="ON a.key = b.key AND a.time >= b.time",
        )
    ((value, descending),) = found
    row = identity(Block(tuple(froms), None, ()))
    if not row or any(not _is_known(each) for each in froms):
        raise NotSupported(
            "the rows on the left of ASOF JOIN cannot be told apart",
            line=line,
            column=place,
            hint="select their key columns in the subquery",
        )
    call = AnalyticCall(_NUMBER, "ROW_NUMBER", (), ((value, descending, False),), BIGINT)
    first = exp.EQ(this=column(_NUMBER), expression=exp.Literal.number(1))
    return Block((*froms, right), None, (), partition=tuple(row), analytic=(call,), qualify=first)


def _is_known(each: From) -> bool:
    """True if the rows of an input can be told apart by columns that it shows."""
    return bool(identity(Block((replace(each, join="inner"),), None, ()))) or each.one_row


def _own_side(term: exp.Expression, alias: str) -> tuple[exp.Expression, bool] | None:
    """The side of an inequality over `alias` alone, and whether its greatest value is the nearest."""
    left, right = term.this, term.args["expression"]
    for own, other, greatest in ((right, left, _BELOW), (left, right, _ABOVE)):
        if aliases(own) == {alias} and aliases(other) and alias not in aliases(other):
            return own.copy(), isinstance(term, greatest)
    return None
