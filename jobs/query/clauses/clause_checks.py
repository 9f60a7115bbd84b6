"""What is checked of a SELECT before it is read: clauses that are refused, its order, what repeats its rows."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.query.expressions.expansions import TABLE_FUNCTIONS
from strandline.jobs.sql.dialect import position_of

# Clauses that parse and are refused: argument of the tree -> name.
_REFUSED = {"laterals": "LATERAL", "into": "SELECT INTO"}
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_FUNCTIONS = "functions in FROM are UNNEST, GENERATE_SERIES, RANGE, TUMBLE, HOP and SESSION"
_INSTEAD = {
    "LATERAL": "join a subquery with ROW_NUMBER() OVER (PARTITION BY … ORDER BY …), and compare the number in ON",
}
_ORDERS = {"order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def check_clauses(select: exp.Select) -> None:
    """Check that a SELECT has none of the clauses that nobody reads.

    Raises:
        NotSupported: it has one.
    """
    for argument, what in _REFUSED.items():
        clause = select.args.get(argument)
        if clause:
            line, place = position_of(clause[0] if isinstance(clause, list) else clause)
            raise NotSupported(f"{what} is not supported yet", line=line, column=place)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        line, place = position_of(distinct)
        raise NotSupported(
            "DISTINCT ON in CREATE STREAM or TABLE is not supported",
            line=line,
            column=place,
            hint="CREATE MATERIALIZED VIEW … AS",
        )


def check_order(query: exp.Query) -> None:
    """Check that a query of CREATE STREAM or TABLE has no order of its own: a stored table has none.

    Raises:
        NotSupported: ORDER BY, LIMIT or OFFSET.
    """
    for argument, what in _ORDERS.items():
        clause = query.args.get(argument)
        if clause is not None:
            line, place = position_of(clause)
            raise NotSupported(
                f"{what} in CREATE STREAM or TABLE is not supported",
                line=line,
                column=place,
                hint="order the rows where they are read; ORDER BY … LIMIT n is for CREATE MATERIALIZED VIEW",
            )


def repeats_rows(select: exp.Select) -> bool:
    """True if a clause of a SELECT makes several rows of one, as UNNEST does: a stage does that once."""
    group = select.args.get("group")
    sets = group is not None and (group.args.get("rollup") or group.args.get("cube") or group.find(*_SETS) is not None)
    calls = (node for item in select.expressions for node in item.find_all(exp.Anonymous))
    return bool(sets) or any(call.name in TABLE_FUNCTIONS for call in calls)


def not_in_from(table: exp.Expr) -> NotSupported:
    """The refusal of a function, or of anything else, that FROM does not know."""
    function = table.this if isinstance(table, exp.Table) else None
    what = function.name if isinstance(function, exp.Anonymous) else table.key.upper()
    line, place = position_of(table)
    return NotSupported(
        f"{what} in FROM is not supported", line=line, column=place, hint=_INSTEAD.get(what, _FUNCTIONS)
    )


def check_first_table(table: exp.Expr) -> None:
    """Check that the first of FROM has no clause that belongs to a join.

    Raises:
        InvalidQuery: it has WITHIN or FOR SYSTEM_TIME.
    """
    line, place = position_of(table)
    if table.args.get("within") is not None:
        raise InvalidQuery("WITHIN belongs to a JOIN", line=line, column=place)
    if table.args.get("version") is not None:
        raise InvalidQuery(
            "FOR SYSTEM_TIME AS OF belongs to the table that a stream joins",
            line=line,
            column=place,
            hint="FROM stream JOIN table FOR SYSTEM_TIME AS OF stream.ROWTIME ON …",
        )
