"""The rule of WITH RECURSIVE: all rounds are computed again, and compared with the stored rows.

    WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a)

    new_e (a, b)     __itself (a, b)               self_old     settled
    1 2              round 0: 1 2, 2 3, 3 1        1 2          1 3   exists=true   old=NULL
    2 3              round 1: 1 3, 2 1, 3 2        2 3          …
    3 1              round 2: 1 1, 2 2, 3 3        9 9          9 9   exists=false  old=(9 9)

What a change takes away may follow from other rows in another way, so that no rule over the changes alone can tell
(docs/design/0045-recursion.md). The difference goes on: what stands above it is maintained from changes.

Where rows only come, and no round is counted, what is stored stays, and the rounds begin with what is new:

    stored 1 2, 2 3, 1 3      Δe 3 4      round 0: 3 4 (begins), 2 4, 1 4 (follow from stored rows by a new edge)
                                          round 1: what follows from these by any edge
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from strandline.jobs.engines.engine import Engine, all_rounds, rounds
from strandline.jobs.ivm.rules.delta_join import all_rows, changes
from strandline.jobs.ivm.rules.upserts import marked, marked_stored, settled, state_column, typed
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import COPY_NUMBER, Core, RecursiveStage, body_of
from strandline.jobs.sql.trees import columns_in
from strandline.state_store.tablespec import WEIGHT

SELF: Final = "self_old"


def grows(stage: RecursiveStage) -> bool:
    """True if rows that come into its inputs only ever add rows to it, and these follow without those that are stored
    being computed again.

    Not where rounds are counted: in which round a row is reached first, the stored rows do not say. And not where an
    input decides or pads (outer, semi and anti joins), or is read by a column that is not visible, such as ROWTIME: a
    row may change there without being counted as one that goes.
    """
    return stage.distinct and stage.levels is None and all(map(_adds, body_of(stage)))


def _adds(core: Core) -> bool:
    if any(each.join != "inner" or each.frozen for each in core.inputs):
        return False
    trees = [each.expression for each in (*core.columns, *core.expand)]
    trees += [each.on for each in core.inputs if each.on is not None] + ([core.where] if core.where is not None else [])
    hidden = {(each.alias, name) for each in core.inputs for name, _ in each.relation.hidden}
    return not any((column.table, column.name) in hidden for tree in trees for column in columns_in(tree))


def recursive_rule(stage: RecursiveStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs into which rows have come, and of which none went; None: all rounds are
            computed.

    Raises:
        NotSupported: the engine has no recursion of sets.
    """
    if engine.dialect != "duckdb":
        raise NotSupported("Spark has no WITH RECURSIVE with UNION: DuckDB runs it")
    names = [each.name for each in stage.outputs]
    steps = [all_rows((core,), engine) for core in stage.steps]
    if changed is not None and grows(stage):
        return _added(stage, names, steps, engine, changed)
    seed = all_rows(stage.seed, engine)
    itself = rounds(names, seed, steps, engine, distinct=stage.distinct, levels=stage.levels)
    rows = all_rounds(names, engine, levels=stage.levels)
    return f"""WITH RECURSIVE {itself}, {marked("__n", _to_be_stored(stage, names, rows, engine))}, \
{marked_stored("SELECT * FROM self_old", engine)}
{settled(stage, engine)}"""


def _added(
    stage: RecursiveStage, names: Sequence[str], steps: Sequence[str], engine: Engine, changed: Collection[str]
) -> str:
    """The rows that come, with what follows from them."""
    columns = ", ".join(map(engine.name, names))
    first = [changes(stage.seed, engine, changed), changes(stage.steps, engine, changed, itself=SELF)]
    seed = "\nUNION ALL\n".join(f"SELECT {columns} FROM (\n{each}\n) AS __begin WHERE {WEIGHT} > 0" for each in first)
    stored = f"SELECT {columns} FROM {SELF}"
    begin = f"SELECT {columns} FROM (\n{seed}\n) AS __new EXCEPT {stored}"
    itself = rounds(names, begin, steps, engine, distinct=True, levels=None)
    # What is stored is left out at both ends, and not in between: a round would read all of it.
    rows = _to_be_stored(stage, names, f"{all_rounds(names, engine, levels=None)} EXCEPT {stored}", engine)
    none = marked_stored(f"SELECT * FROM {SELF} WHERE FALSE", engine)
    return f"""WITH RECURSIVE {itself}, {marked("__n", rows)}, {none}
{settled(stage, engine)}"""


def _to_be_stored(stage: RecursiveStage, names: Sequence[str], rows: str, engine: Engine) -> str:
    """The rows with what is kept of them; equal ones are numbered."""
    if not stage.distinct:
        equal = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(map(engine.name, names))})"
        rows = f"SELECT *, {equal} AS {COPY_NUMBER} FROM ({rows}) AS __all"
    parts = [typed(each, engine) for each in stage.outputs]
    parts += [] if stage.distinct else state_column(stage, [(COPY_NUMBER, COPY_NUMBER)], engine)
    return f"SELECT {', '.join(parts)} FROM ({rows}) AS __rows"
