"""CREATE MATERIALIZED VIEW v (a, b) AS …: names for the columns of a query, written into it.

SELECT x, SUM(y) FROM t GROUP BY x      SELECT x AS a, SUM(y) AS b FROM t GROUP BY x
anything else                           SELECT * FROM (…) AS v (a, b)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.sql.trees import identifier

_INSIDE = "named"


def with_names(query: exp.Query, names: Sequence[str]) -> exp.Query:
    """The query whose first columns have these names."""
    if isinstance(query, exp.Select) and _can_be_named(query, names):
        items = list(query.expressions)
        for place, name in enumerate(names):
            items[place] = exp.Alias(this=items[place].unalias(), alias=identifier(name))
        query.set("expressions", items)
        return query
    alias = exp.TableAlias(this=identifier(_INSIDE), columns=[identifier(name) for name in names])
    inner = exp.Subquery(this=query, alias=alias)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


def _can_be_named(select: exp.Select, names: Sequence[str]) -> bool:
    """True if each name is of an item of the list, and no clause reads an item by the name that it has now."""
    items = select.expressions
    if len(names) > len(items) or any(each.is_star for each in items):
        return False
    old = {each.alias for each in items if isinstance(each, exp.Alias)}
    read = {node.name for node in select.find_all(exp.Column) if not node.table}
    return not old & read and not set(names) & read
