"""The rule of a keyed source: of each key the newest event, unless it is a tombstone.

self_old (place)    Δ (place, tombstone)       settled
a 1 (10)            a 2 (11), a 3 (12)         a 3    exists=true  old=(a 1)
b 5 (9)             b NULL (13, true)          b NULL exists=false old=(b 5)
c 7 (8)             c 6 (4)                    (nothing: older than what is stored)
"""

from __future__ import annotations

from collections.abc import Collection

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.delta_join import ctes
from strandline.jobs.ivm.rules.settled import PRESENT, before, columns, old_row, same_key, state_column, typed
from strandline.jobs.model.relation import EVENT_ORDER, PLACE
from strandline.jobs.model.stage import LatestStage
from strandline.jobs.model.types import struct
from strandline.state_store.tablespec import EXISTS, STATE


def latest_rule(stage: LatestStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Preconditions:
        1. The input is an event log: append-only, with the meta columns and `_tombstone`.
        2. All events of a key are in one partition, as with any keyed producer. Offsets then only grow within a key,
           so that nothing needs to be remembered of a deleted key. Where a key's events are spread, its newest row
           still wins, but an event older than a tombstone that arrives in a later epoch brings the key back.
    """
    names = [output.name for output in stage.outputs]
    # The fields of the order come first: the time, last, never decides.
    place = engine.cast(engine.struct([(name, engine.name(name)) for name, _ in PLACE]), struct(*PLACE))
    evaluated = [*(typed(output, engine) for output in stage.outputs), f"{place} AS __at", "_tombstone AS __gone"]
    order = engine.event_order(*(engine.field("__at", name) for name in EVENT_ORDER))
    newest = engine.newest_rows("__e", stage.key, [*names, "__at", "__gone"], order)
    final = [f"__d.{engine.name(output.name)}" for output in stage.outputs]
    state = state_column(stage, [(name, f"__d.__at.{engine.name(name)}") for name, _ in PLACE], engine)
    delta = ", ".join(ctes(stage, engine, changed, rows=False))
    return f"""WITH {delta}, __e AS (
  SELECT
    {columns(evaluated)}
  FROM delta
), __d AS (
  {newest}
), {before(stage, engine)}
SELECT
    {columns([*final, *state, f"NOT __d.__gone AS {EXISTS}", old_row(stage, engine)])}
  FROM __d LEFT JOIN __o ON {same_key(stage, engine)}
  WHERE CASE WHEN __o.{PRESENT} THEN __d.__at > __o.{STATE} ELSE NOT __d.__gone END"""
