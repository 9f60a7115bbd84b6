"""Subqueries that stand for a value and have one row at most, as one aggregate.

(SELECT x FROM t ORDER BY y DESC LIMIT 1)
(SELECT FIRST_VALUE(q.x ORDER BY q.x) FROM (…) AS q (x))

(SELECT x FROM t WHERE t.k = s.k ORDER BY y DESC LIMIT 1)
(SELECT FIRST_VALUE(x ORDER BY y DESC) FROM t WHERE t.k = s.k)

(SELECT x FROM t WHERE t.id = s.id), id being the key
(SELECT FIRST_VALUE(x ORDER BY x) FROM t WHERE t.id = s.id)
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.relation import Relation
from strandline.jobs.query.blocks.block_columns import expressions_of
from strandline.jobs.query.logical.conditions import columns_equated
from strandline.jobs.query.logical.inputs import from_outside
from strandline.jobs.query.logical.keys import grows_by_groups
from strandline.jobs.query.logical.query import Block, Query
from strandline.jobs.sql.trees import identifier

_INSIDE, _VALUE = "single", "value"
_MORE = ("group", "having", "qualify", "offset", "distinct", "time_window", "with_")


def takes_first(tree: exp.Expr) -> bool:
    """True if a query asks for its first row alone: ORDER BY … LIMIT 1."""
    limit = tree.args.get("limit")
    count = limit.expression if isinstance(limit, exp.Limit) else None
    return isinstance(count, exp.Literal) and count.name == "1" and tree.args.get("offset") is None


def without_first(tree: exp.Query) -> exp.Query:
    """The query with all its rows."""
    made = tree.copy()
    made.set("order", None)
    made.set("limit", None)
    return made


def single_of_limit(tree: exp.Query, query: Query) -> exp.Query:
    """The aggregate of a query that asks for its first row; `query` is what it means without that."""
    if not isinstance(tree, exp.Select) or len(tree.selects) != 1:
        return tree
    if not (isinstance(query, Block) and any(map(from_outside, expressions_of(query)))):
        alias = exp.TableAlias(this=identifier(_INSIDE), columns=[identifier(_VALUE)])
        value = exp.Column(this=identifier(_VALUE), table=identifier(_INSIDE))
        inner = exp.Subquery(this=tree.copy(), alias=alias)
        return exp.Select(expressions=[_first(value, [])], from_=exp.From(this=inner))
    if any(tree.args.get(clause) for clause in _MORE) or grows_by_groups(query):
        return tree
    made = without_first(tree)
    order = tree.args.get("order")
    made.set("expressions", [_first(tree.selects[0].unalias(), order.expressions if order is not None else [])])
    return made


def single_of_key(tree: exp.Query, query: Query) -> exp.Query:
    """The aggregate of a query whose WHERE names the whole key of its one table; other queries stay as they are."""
    if not isinstance(tree, exp.Select) or not isinstance(query, Block) or grows_by_groups(query):
        return tree
    if len(query.inputs) != 1 or query.where is None or query.expand or len(tree.selects) != 1:
        return tree
    (part,) = query.inputs
    if not isinstance(part.source, Relation) or part.source.storage != "keyed" or not part.source.key:
        return tree
    if any(tree.args.get(clause) for clause in (*_MORE, "limit")):
        return tree
    if not columns_equated(query.where, part.alias).issuperset(part.source.key):
        return tree
    made = without_first(tree)
    made.set("expressions", [_first(tree.selects[0].unalias(), [])])
    return made


def _first(value: exp.Expr, order: list[exp.Expr]) -> exp.Anonymous:
    """FIRST_VALUE(x ORDER BY …); where nothing is said, by the value itself."""
    items = [each.copy() for each in order] or [exp.Ordered(this=value.copy(), nulls_first=True)]
    return exp.Anonymous(this="FIRST_VALUE", expressions=[exp.Order(this=value.copy(), expressions=items)])
