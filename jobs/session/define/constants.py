"""Constants that fail for every row, as `1 / 0` or `CAST('x' AS INT)`: refused at CREATE, not by the first refresh.

Only where they are computed for each row whatever it holds: what stands in a branch of CASE, or beside an AND, may be
there for rows that never come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail, failing
from strandline.jobs.functions.render import lower
from strandline.jobs.model.errors import InvalidQuery, SqlError
from strandline.jobs.model.relation import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.state_store.duckdb import elementary

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOTHING = Scope(Relation("", (), "keyed"), ())
_ROW_BY_ROW = (exp.Column, exp.Star, exp.Query, exp.Lambda, exp.Window)
_BRANCHES = (exp.Case, exp.If, exp.And, exp.Or, exp.Coalesce)
_CHOOSING_FUNCTIONS = frozenset({"IF", "IFNULL", "COALESCE", "NULLIF"})


def check_constants(query: exp.Query) -> None:
    """Check the constants of a query.

    Raises:
        InvalidQuery: one fails for every row; at its place.
    """
    for node in _constants(query):
        if _fails(node):
            line, column = position_of(node)
            raise InvalidQuery(
                f"{sql_of(node)} has no value: every row would fail",
                line=line,
                column=column,
                hint="correct it, or write NULL; WITH (ERRORS = 'null') gives NULL wherever an expression fails",
            )


def _constants(query: exp.Query) -> Iterator[exp.Expression]:
    """The largest constant expressions that are computed for every row."""
    for node in query.find_all(exp.Div, exp.Mod, exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Anonymous):
        if not _is_constant(node) or _chosen(node):
            continue
        if isinstance(node.parent, exp.Condition) and _is_constant(node.parent):
            continue
        if isinstance(node, exp.Expression):
            yield node


def _is_constant(node: exp.Expr) -> bool:
    return node.find(*_ROW_BY_ROW) is None


def _chosen(node: exp.Expr) -> bool:
    """True if it stands where only some rows need its value."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, _BRANCHES) or (isinstance(above, exp.Anonymous) and above.name in _CHOOSING_FUNCTIONS):
            return True
        above = above.parent
    return False


def _fails(node: exp.Expression) -> bool:
    try:
        made = infer(node.copy(), _NOTHING).expression
    except SqlError:
        return False  # no value of its own: part of a clause that is read as a whole
    if not can_fail(made):
        return False
    condition = failing(made)
    if condition is None:
        return False
    import duckdb

    text = lower(condition, "duckdb")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if elementary.PREFIX in text:
            elementary.register(connection)
        row = connection.execute(f"SELECT {text}").fetchone()
    return row is not None and row[0] is True
