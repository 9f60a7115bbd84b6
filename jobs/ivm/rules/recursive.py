"""The rule of WITH RECURSIVE: all rounds are computed again, and compared with the stored rows.

    WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a)

    new_e (a, b)     __itself (a, b)               self_old     settled
    1 2              round 0: 1 2, 2 3, 3 1        1 2          1 3   exists=true   old=NULL
    2 3              round 1: 1 3, 2 1, 3 2        2 3          …
    3 1              round 2: 1 1, 2 2, 3 3        9 9          9 9   exists=false  old=(9 9)

What a change takes away may follow from other rows in another way, so that no rule over the changes alone can tell
(docs/design/0045-recursion.md). The difference goes on: what stands above it is maintained from changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.engines.engine import Engine
from strandline.jobs.engines.recursion import all_rounds, rounds
from strandline.jobs.ivm.rules.delta_join import all_rows
from strandline.jobs.ivm.rules.upserts import marked, settled, state_column, typed
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import COPY_NUMBER, RecursiveStage


def recursive_rule(stage: RecursiveStage, engine: Engine) -> str:
    """The settled form.

    Raises:
        NotSupported: the engine has no recursion of sets.
    """
    if engine.dialect != "duckdb":
        raise NotSupported("Spark has no WITH RECURSIVE with UNION: DuckDB runs it")
    names = [each.name for each in stage.outputs]
    seed, steps = all_rows(stage.seed, engine), [all_rows((core,), engine) for core in stage.steps]
    itself = rounds(names, seed, steps, engine, distinct=stage.distinct, levels=stage.levels)
    rows = all_rounds(names, engine, levels=stage.levels)
    return f"""WITH RECURSIVE {itself}, {marked("__n", _to_be_stored(stage, names, rows, engine))}, \
{marked("__o", "SELECT * FROM self_old")}
{settled(stage, engine)}"""


def _to_be_stored(stage: RecursiveStage, names: Sequence[str], rows: str, engine: Engine) -> str:
    """The rows with what is kept of them; equal ones are numbered."""
    if not stage.distinct:
        equal = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(map(engine.name, names))})"
        rows = f"SELECT *, {equal} AS {COPY_NUMBER} FROM ({rows}) AS __all"
    parts = [typed(each, engine) for each in stage.outputs]
    parts += [] if stage.distinct else state_column(stage, [(COPY_NUMBER, COPY_NUMBER)], engine)
    return f"SELECT {', '.join(parts)} FROM ({rows}) AS __rows"
