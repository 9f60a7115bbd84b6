"""The rules of filter, project, join and union all: the body's changes, as they are or settled by key.

append: visit ⋈ category by name              keyed: table (k, v), WHERE v > 1, SELECT k, v * 2 AS w
Δ (product, n)      appended                  Δ (k, v, weight)          self_old   settled
Apple 10            Apple 10 Fruit            a 3 (−1), a 1 (+1)        a 6        a     exists=false old=(a 6)
Banana 40           Banana 40 Fruit           b 2 (+1)                             b 4   exists=true  old=NULL
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.delta_join import all_rows, ctes
from strandline.jobs.ivm.rules.delta_join import changes as changes_of
from strandline.jobs.ivm.rules.settled import PRESENT, STEP, before, columns, old_row, same_key, state_column
from strandline.jobs.model.stage import MapStage
from strandline.jobs.model.stage_columns import hidden_columns, key_names, visible_columns
from strandline.state_store.tablespec import EXISTS, WEIGHT


def append_rule(stage: MapStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The rows to append: every change of an append body is an insertion."""
    names = [engine.name(name) for name, _ in visible_columns(stage)]
    text = all_rows(stage.body, engine) if changed is None else changes_of(stage.body, engine, changed)
    return f"SELECT {', '.join(names)} FROM (\n{text}\n) AS __rows"


def keyed_rule(stage: MapStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form: of each key the last row in the changes, by (step, weight)."""
    keys = key_names(stage)
    rest = [column.name for column in stage.body[0].columns if column.name not in stage.key]
    final = [f"__d.{engine.name(name)}" for name, _ in visible_columns(stage)]
    hidden = [(name, f"__d.{engine.name(name)}") for name, _ in hidden_columns(stage)]
    texts = [
        *ctes(stage, engine, changed, rows=False),
        f"""__last AS (
  {_last(keys, rest, engine)}
)""",
        f"""__d AS (
  SELECT
    {columns([*(engine.name(name) for name in (*keys, *rest)), f"{WEIGHT} > 0 AS {EXISTS}"])}
  FROM __last
)""",
        before(stage, engine),
    ]
    return f"""WITH {", ".join(texts)}
SELECT
    {columns([*final, *state_column(stage, hidden, engine), f"__d.{EXISTS}", old_row(stage, engine)])}
  FROM __d LEFT JOIN __o ON {same_key(stage, engine)}
  WHERE __d.{EXISTS} OR __o.{PRESENT}"""


def _last(keys: Sequence[str], rest: Sequence[str], engine: Engine) -> str:
    """SELECT of each key's last row by (step, weight). No two of a key have the same place: a step retracts one row of
    it and inserts one at most."""
    names = [*keys, *rest, WEIGHT]
    if keys:
        return engine.newest_rows("delta", keys, names, f"CAST({STEP} AS BIGINT) * 4 + {WEIGHT}")
    place = engine.struct([("step", STEP), ("weight", WEIGHT)])
    row = engine.newest(engine.struct([(name, engine.name(name)) for name in names]), place)
    taken = [f"{engine.field('__row', name)} AS {engine.name(name)}" for name in names]
    # A body without a key has one row; without changes it must not look retracted.
    return f"SELECT {', '.join(taken)} FROM (SELECT {row} AS __row FROM delta HAVING COUNT(*) > 0) AS __only"
