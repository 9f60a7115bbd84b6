"""The rules of filter and projection.

Over an append-only input the changes themselves are filtered and projected:

    Δ                  WHERE v > 1          rows to append
    k v  weight                             k v
    a 1  +1                                 b 2
    b 2  +1

Over a keyed input a row keeps its key. Of the changes of one key the newest says what the input holds now: the last
commit's, and in it the row that came before the row that went. Expressions are computed only for rows that the filter
lets through: those it keeps out may be what they would fail on.

    self_old    Δ (commit, weight)          settled
    a 3         a 3 (7, −1), a 0 (7, +1)    a NULL exists=false old=(a 3)
                b 5 (7, +1)                 b 5    exists=true  old=NULL
"""

from __future__ import annotations

from jobs.ivm.engine import Engine
from jobs.ivm.rule_text import (
    COMMIT_VERSION,
    EXISTS,
    WEIGHT,
    before,
    columns,
    old_row,
    render,
    same_key,
    state_column,
    typed,
    value_of,
    where,
)
from jobs.ivm.stage import MapStage
from jobs.ivm.storage import key_names


def append_rule(stage: MapStage, engine: Engine) -> str:
    """Rows to append. Precondition: every weight is +1."""
    outputs = columns([typed(output, engine) for output in stage.outputs])
    return f"SELECT\n    {outputs}\n  FROM delta{where(stage.where, engine)}"


def keyed_rule(stage: MapStage, engine: Engine) -> str:
    """The settled form.

    Preconditions:
        1. `delta` has `_commit_version`; within one commit and key there is at most one row of each weight.
        2. The stage's key columns are the input's key, renamed at most.
    """
    keys = [output for output in (*stage.outputs, *stage.hidden_key) if output.name in key_names(stage)]
    names = [name for name, _ in stage.input.columns]
    row = engine.struct([(name, engine.name(name)) for name in names])
    place = engine.struct([("version", COMMIT_VERSION), ("weight", WEIGHT)])
    newest = [f"{engine.newest(row, place)} AS __row", f"{engine.newest(WEIGHT, place)} AS __came"]
    key_values = [typed(key, engine) for key in keys]
    # The one row of a global aggregate has no key; without changes it must not look as if it had gone.
    grouped = f"GROUP BY {', '.join(value_of(key, engine) for key in keys)}" if keys else "HAVING COUNT(*) > 0"
    unpacked = [f"__row.{engine.name(name)} AS {engine.name(name)}" for name in names]
    kept = f"COALESCE({render(stage.where, engine)}, FALSE)" if stage.where is not None else "TRUE"
    outputs = [
        typed(output, engine)
        if output in keys
        else f"CASE WHEN {EXISTS} THEN {value_of(output, engine)} END AS {engine.name(output.name)}"
        for output in stage.outputs
    ]
    hidden = [typed(key, engine) for key in stage.hidden_key]
    state = state_column(stage, [(key.name, f"__d.{engine.name(key.name)}") for key in stage.hidden_key], engine)
    final = [f"__d.{engine.name(output.name)}" for output in stage.outputs]
    return f"""WITH __newest AS (
  SELECT
    {columns([*key_values, *newest])}
  FROM delta
  {grouped}
), __last AS (
  SELECT
    {columns([*unpacked, "__came"])}
  FROM __newest
), __new AS (
  SELECT *, CASE WHEN __came > 0 THEN {kept} ELSE FALSE END AS {EXISTS}
  FROM __last
), __d AS (
  SELECT
    {columns([*outputs, *hidden, EXISTS])}
  FROM __new
), {before(stage, engine)}
SELECT
    {columns([*final, *state, f"__d.{EXISTS}", old_row(stage, engine)])}
  FROM __d LEFT JOIN __o ON {same_key(stage, engine)}
  WHERE __d.{EXISTS} OR __o.__present"""
