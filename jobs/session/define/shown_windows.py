"""The bounds of a view's windows among its columns.

    SELECT k, COUNT(*) AS c FROM s WINDOW … GROUP BY k
    SELECT k, windowstart, windowend, COUNT(*) AS c FROM s WINDOW … GROUP BY k

Two rows of one key differ only in their windows: so every reader sees which window a row is of, as in ksqlDB. It is the
text of the definition that says so: a view of an older lake keeps the columns that it has.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import BOUNDS
from strandline.jobs.query.logical import Block, Query


def with_bounds(tree: exp.Query, query: Query) -> exp.Query:
    """The tree of a view's query with the bounds that it does not select, after its group columns.

    Args:
        query: what the tree means.
    """
    if not isinstance(query, Block) or query.window is None or query.distinct or not isinstance(tree, exp.Select):
        return tree
    read = {output.expression.name for output in query.outputs if isinstance(output.expression, exp.Column)}
    taken = {output.name for output in query.outputs}
    missing = [bound.name for bound in BOUNDS if bound.name not in read and bound.name not in taken]
    first = {key.name for key in query.group or ()} | {bound.name for bound in BOUNDS}
    last = max((place for place, output in enumerate(query.outputs, 1) if output.name in first), default=0)
    # A star stands for several columns: after it there is no telling which item is which.
    place = last if len(tree.expressions) == len(query.outputs) else len(tree.expressions)
    made = tree.copy()
    made.set("expressions", [*made.expressions[:place], *(column(name) for name in missing), *made.expressions[place:]])
    return made if missing else tree
