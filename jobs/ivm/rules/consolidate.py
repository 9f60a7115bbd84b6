"""The consolidated changes of a keyed relation over several commits, as SQL: rules read these.

    _commit_version   k v weight          consolidated
    5                 a 1 (−1), a 2 (+1)  a 1 (−1), a 3 (+1)
    6                 a 2 (−1), a 3 (+1)
    5                 b 7 (+1)            (nothing: b was not there before and is not there now)
    6                 b 7 (−1)

Without this a value that existed only between two commits could win a MAX.
"""

from __future__ import annotations

from strandline.jobs.engines.engine import Engine
from strandline.jobs.model.relation import Relation
from strandline.state_store.tablespec import VERSION, WEIGHT


def consolidated(relation: Relation, changes: str, engine: Engine) -> str:
    """One SELECT over the relation `changes` (the input's columns, `__weight`, `_commit_version`): per key at most one
    row of weight −1, as it was before all of them, and one of weight +1, as it is after."""
    names = [name for name, _ in (*relation.columns, *relation.hidden)]
    row = engine.struct([("__came", f"{WEIGHT} > 0"), *((name, engine.name(name)) for name in names)])
    place = engine.struct([("version", VERSION), ("weight", WEIGHT)])
    keys = ", ".join(engine.name(name) for name in relation.key)
    grouped = f"GROUP BY {keys}" if keys else "HAVING COUNT(*) > 0"
    ends = f"{engine.oldest(row, place)} AS __first, {engine.newest(row, place)} AS __last"

    def end(side: str, weight: str, condition: str) -> str:
        taken = ", ".join(f"{engine.field(side, name)} AS {engine.name(name)}" for name in names)
        return f"SELECT {taken}, CAST({weight} AS BIGINT) AS {WEIGHT} FROM __ends WHERE {condition}"

    return f"""WITH __ends AS (
  SELECT {ends}
  FROM {changes}
  {grouped}
)
{end("__first", "-1", "NOT (__first).__came")}
UNION ALL
{end("__last", "1", "(__last).__came")}"""
