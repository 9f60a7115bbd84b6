"""VALUES in FROM: a query without FROM, whose arrays become rows.

    FROM (VALUES (1, 'a'), (2, 'b')) AS v (x, y)

    FROM (SELECT EXPLODE(ARRAY[1, 2]) AS column1, EXPLODE(ARRAY['a', 'b']) AS column2) AS v (x, y)

Arrays side by side share rows, so the first items of all columns are the first row.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.trees import call, identifier


def constant_rows(table: exp.Expr) -> exp.Subquery | None:
    """The subquery that VALUES stands for; None for anything else.

    Raises:
        InvalidQuery: its rows have different lengths.
    """
    if not isinstance(table, exp.Values):
        return None
    rows = [row.expressions for row in table.expressions]
    line, column = position_of(table)
    wrong = next((row for row in rows if len(row) != len(rows[0])), None)
    if wrong is not None:
        raise InvalidQuery(
            f"VALUES has a row of {len(rows[0])} values and one of {len(wrong)}", line=line, column=column
        )
    items: list[exp.Expr] = []
    for place, values in enumerate(zip(*rows, strict=True), 1):
        array = exp.Array(expressions=[value.copy() for value in values])
        items.append(exp.Alias(this=call("EXPLODE", array), alias=identifier(f"column{place}")))
    return exp.Subquery(this=exp.Select(expressions=items), alias=table.args["alias"].copy())
