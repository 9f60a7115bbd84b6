"""What a join must be: its type, the equality between its sides, and the key of a table that events look up."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.stage import JoinType
from strandline.jobs.query.logical.conditions import columns_equated
from strandline.jobs.query.logical.inputs import Part
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.state_store.wording import Name, sentence

ASOF = "ASOF"
"""The word before JOIN by which of all matches the nearest one joins."""
NATURAL = "NATURAL"
"""The word before JOIN by which the columns of one name are equal."""
_SIDES: dict[str, JoinType] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


def check_lookup(part: Part, on: exp.Expression, kind: JoinType, node: exp.Join) -> None:
    """Check the join of events with a table, which each event looks up.

    Raises:
        InvalidQuery: it keeps rows of the table, or is not on its primary key.
    """
    if kind in ("right", "full"):
        line, place = position_of(node.this)
        raise InvalidQuery(
            f"a stream and a table are joined by JOIN or LEFT JOIN, not {kind.upper()} JOIN",
            line=line,
            column=place,
            hint="an event looks up a row; a row does not wait for events",
        )
    check_table(part, on, node)


def check_table(part: Part, on: exp.Expression, node: exp.Join) -> None:
    """Check that a table is found by its primary key, so that a row joins at most one.

    Raises:
        InvalidQuery: it is joined on other columns.
    """
    if part.row_key and not columns_equated(on, part.alias).issuperset(part.row_key):
        line, place = position_of(node.args.get("on") or node)
        raise InvalidQuery(
            sentence(
                "the join with the table '{}' must be on its primary key: {}", Name(part.name), ", ".join(part.row_key)
            ),
            line=line,
            column=place,
            hint="CREATE MATERIALIZED VIEW … AS, without FOR SYSTEM_TIME AS OF, takes joins on any columns",
        )


def join_type(node: exp.Join) -> JoinType:
    """Whose rows a join keeps.

    Raises:
        NotSupported: its words are others.
    """
    if node.method not in ("", ASOF, NATURAL) or node.kind not in ("", "INNER", "OUTER", "CROSS"):
        line, place = position_of(node)
        word = node.method or node.kind
        raise NotSupported(
            f"{word} JOIN is not supported", line=line, column=place, hint="write JOIN … ON or USING (…)"
        )
    if node.kind == "OUTER" and not node.side:
        line, place = position_of(node)
        raise NotSupported(
            "OUTER JOIN does not say whose rows stay", line=line, column=place, hint="LEFT, RIGHT or FULL OUTER JOIN"
        )
    return _SIDES[node.side]


def without_equality(alias: str, tree: exp.Expr | None) -> InvalidQuery:
    """The refusal of a join without an equality between its sides."""
    line, place = position_of(tree) if tree is not None else (None, None)
    shown = f": {sql_of(tree)}" if tree is not None else ""
    return InvalidQuery(
        f"the join with '{alias}' has no equality between its sides{shown}",
        line=line,
        column=place,
        hint="ON one_side.x = other_side.y, where each side names columns of its own inputs",
    )
