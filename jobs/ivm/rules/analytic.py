"""The rule of window functions: touched partitions are computed again and compared with the stored rows.

    SELECT id, dept, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay DESC) AS n   keep: n <= 1   key: id

    body_new (id, dept, pay)   Δ (weight)     self_old    settled
    1 a 10                     3 b 9 (−1)     2 a 1       2        exists=false  old=(2 a 1)
    2 a 20                     3 a 30 (+1)    3 b 1       3 a 1    exists=true   old=(3 b 1)
    3 a 30                                                4 b 1    exists=true   old=NULL
    4 b 5                                     5 c 1       -        partition c is not touched
    5 c 1

    __t  the touched partitions     __b  the body's rows with the partition's values     __c  with the functions' values
    __n  the rows to be stored      __o  the stored rows

A change of one row costs its partition; without PARTITION BY that is all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.analytic_text import analytic_text
from strandline.jobs.ivm.rules.delta_join import ctes
from strandline.jobs.ivm.rules.join_sides import where_text
from strandline.jobs.ivm.rules.recompute_diff import marked, only_touched, settled
from strandline.jobs.ivm.rules.settled import columns, state_column, typed, value_of
from strandline.jobs.model.stage import AnalyticStage
from strandline.jobs.model.stage_columns import hidden_columns, key_path


def analytic_rule(stage: AnalyticStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, which computes every partition.

    Raises:
        NotSupported: a function whose value would be left to chance (see `jobs.ivm.rules.analytic_text`).
    """
    names = tuple(f"__part{number}" for number in range(len(stage.partition)))
    values = [f"{value_of(each, engine)} AS {name}" for each, name in zip(stage.partition, names, strict=True)]
    calls = [f"{analytic_text(stage, call, names, engine)} AS {engine.name(call.name)}" for call in stage.calls]
    texts = ctes(stage, engine, changed, rows=True)
    new = old = hint = ""
    if names and changed is not None:
        paths = [".".join(engine.name(step) for step in key_path(stage, each.name)) for each in stage.partition]
        texts.append(f"__t AS (\n  SELECT DISTINCT {', '.join(values)}\n  FROM delta\n)")
        new, old, hint = only_touched("__b", names), only_touched("__s", names, paths), " /*+ BROADCAST(__t) */"
    texts += [
        f"__b AS (\n  SELECT\n    {columns(['*', *values])}\n  FROM body_new\n)",
        f"__c AS (\n  SELECT{hint}\n    {columns(['__b.*', *calls])}\n  FROM __b{new}\n)",
        marked("__n", _to_be_stored(stage, names, engine)),
        marked("__o", f"SELECT{hint} __s.* FROM self_old AS __s{old}"),
    ]
    return f"WITH {', '.join(texts)}\n{settled(stage, engine)}"


def _to_be_stored(stage: AnalyticStage, names: Sequence[str], engine: Engine) -> str:
    partition = {each.name: name for each, name in zip(stage.partition, names, strict=True)}
    hidden = [(name, engine.name(name) if name in stage.key else partition[name]) for name, _ in hidden_columns(stage)]
    parts = [*(typed(output, engine) for output in stage.outputs), *state_column(stage, hidden, engine)]
    return f"SELECT\n    {columns(parts)}\n  FROM __c{where_text(stage.keep, engine)}"
