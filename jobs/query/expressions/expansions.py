"""The arrays of table functions (EXPLODE and its like), whose items become rows.

SELECT id, EXPLODE(tags) AS tag FROM t        one row per tag
SELECT CUBE_EXPLODE(ARRAY[a, b]) AS ab FROM t  [NULL, NULL], [NULL, b], [a, NULL], [a, b]
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.casts_nested import entries
from strandline.jobs.query.expressions.scope import Infer, Typed

TABLE_FUNCTIONS = frozenset({"EXPLODE", "UNNEST", "CUBE_EXPLODE"})
"""Names of the table functions, in upper case."""


def items_of(call: exp.Anonymous, typed: Infer) -> Typed:
    """The array whose items become rows, elaborated by `typed`.

    Raises:
        TypeMismatch: the argument is no array (for EXPLODE, a map gives its entries), or there are several.
    """
    if len(call.expressions) != 1:
        raise TypeMismatch(f"{call.name} takes 1 argument, not {len(call.expressions)}")
    if call.name == "CUBE_EXPLODE":
        return typed(exp.Anonymous(this="COMBINATIONS", expressions=[call.expressions[0].copy()]))
    value = typed(call.expressions[0])
    if value.type.base is BaseType.MAP:
        return entries(value)
    if value.type.base is not BaseType.ARRAY:
        raise TypeMismatch(f"{call.name} takes an ARRAY, not {value.type}")
    return value
