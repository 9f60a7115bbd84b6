"""Table functions in the SELECT list, which make several rows of one: EXPLODE, CUBE_EXPLODE.

SELECT id, EXPLODE(tags) AS tag FROM s

    expand  __e0 = s.tags        outputs  id = s.id, tag = __e0
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.expansions import TABLE_FUNCTIONS, items_of
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.sql.dialect import sql_of


class TableFunctions:
    """The table functions of one query, each an array; the items of several arrays share rows, side by side."""

    def __init__(self) -> None:
        self._found: dict[str, Output] = {}

    @property
    def found(self) -> tuple[Output, ...]:
        """The arrays, each under the name of its items' column."""
        return tuple(self._found.values())

    def read(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """A call, as the column of its items; None when `node` is something else.

        Raises:
            TypeMismatch: as `items_of`.
        """
        if not isinstance(node, exp.Anonymous) or node.name not in TABLE_FUNCTIONS:
            return None
        items = items_of(node, typed)
        text = sql_of(items.expression)
        self._found.setdefault(text, Output(f"__e{len(self._found)}", items.expression, items.type.args[0]))
        return Typed(column(self._found[text].name), items.type.args[0])
