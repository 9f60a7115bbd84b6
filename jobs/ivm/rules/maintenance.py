"""The SQL that maintains a stage: the one entry to the rules, and the text that EXPLAIN MAINTENANCE prints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from sqlglot import exp

from strandline.jobs.engines.engine import DUPLICATE_KEY, NEGATIVE_WEIGHT, Dialect, Engine, engine_of
from strandline.jobs.functions.registry import find
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.aggregate import aggregate_rule, chosen, filter_name
from strandline.jobs.ivm.rules.delta_join import Side, all_rows, changes, ctes, join_of, relations
from strandline.jobs.ivm.rules.delta_join import changes as changes_of
from strandline.jobs.ivm.rules.recompute import analytic_rule, recursive_rule, session_rule, shown
from strandline.jobs.ivm.rules.stored import (
    STEP,
    before,
    columns,
    old_row,
    state_column,
    stored,
    typed,
)
from strandline.jobs.model.errors import ConditionLost
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Core,
    LatestStage,
    MapStage,
    RecursiveStage,
    Stage,
    body_of,
    inputs_of,
)
from strandline.jobs.model.stage_columns import hidden_columns, key_names, storage_of, visible_columns
from strandline.jobs.model.tables import COPY, EVENT_ORDER, PLACE, ROW_HASH, TOMBSTONE
from strandline.jobs.model.types import BIGINT, struct
from strandline.jobs.sql.dialect import sql_of
from strandline.state_store.errors import StrandlineError
from strandline.state_store.tablespec import EXISTS, STATE, WEIGHT


def maintenance(stage: Stage, dialect: Dialect, changed: Collection[str] | None = ()) -> str:
    """One SELECT over the relations `delta_…`, `old_…`, `new_…` of the stage's inputs and `self_old`.

    It gives the rows to append for an append stage, else the settled form (see `jobs.ivm.rules.stored`).

    Args:
        changed: the aliases of the inputs that moved; empty, the default, stands for all of them. None: the first
            refresh, which takes in all rows there are.
    """
    engine = engine_of(dialect)
    moved = changed if changed is None else frozenset(changed) or {each.alias for each in inputs_of(stage)}
    match stage:
        case MapStage() if storage_of(stage) == "append":
            return append_rule(stage, engine, moved)
        case MapStage():
            return keyed_rule(stage, engine, moved)
        case LatestStage() if stage.bag:
            return bag_rule(stage, engine, moved)
        case LatestStage():
            return latest_rule(stage, engine, moved)
        case AggregateStage() if stage.session is not None:
            return session_rule(stage, engine, moved)
        case AggregateStage():
            return aggregate_rule(stage, engine, moved)
        case AnalyticStage():
            return analytic_rule(stage, engine, moved)
        case RecursiveStage():
            return recursive_rule(stage, engine, moved)


def engines_for(stage: Stage) -> tuple[Dialect, ...]:
    """The engines that have a rule for a stage: Spark knows no recursion with UNION."""
    return ("duckdb",) if isinstance(stage, RecursiveStage) else get_args(Dialect)


# The rules of filter, project, join and union all: the body's changes, as they are or settled by key.
#
# append: visit ⋈ category by name              keyed: table (k, v), WHERE v > 1, SELECT k, v * 2 AS w
# Δ (product, n)      appended                  Δ (k, v, weight)          self_old   settled
# Apple 10            Apple 10 Fruit            a 3 (−1), a 1 (+1)        a 6        a     exists=false old=(a 6)
# Banana 40           Banana 40 Fruit           b 2 (+1)                             b 4   exists=true  old=NULL


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
    stored = before(stage, engine)
    texts = [
        *ctes(stage, engine, changed),
        f"""__last AS (
  {_last(keys, rest, engine)}
)""",
        f"""__d AS (
  SELECT
    {columns([*(engine.name(name) for name in (*keys, *rest)), f"{WEIGHT} > 0 AS {EXISTS}"])}
  FROM __last
)""",
        *stored.relations,
    ]
    return f"""WITH {", ".join(texts)}
SELECT
    {columns([*final, *state_column(stage, hidden, engine), f"__d.{EXISTS}", stored.row])}
  FROM {stored.joined}
  WHERE __d.{EXISTS} OR {stored.there}"""


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


# The rule of a keyed source: of each key the newest event, unless it is a tombstone.
#
# self_old (place)    Δ (place, tombstone)       settled
# a 1 (10)            a 2 (11), a 3 (12)         a 3    exists=true  old=(a 1)
# b 5 (9)             b NULL (13, true)          b NULL exists=false old=(b 5)
# c 7 (8)             c 6 (4)                    (nothing: older than what is stored)


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
    stored_rows = before(stage, engine)
    kept = f"CASE WHEN {stored_rows.there} THEN __d.__at > __o.{STATE} ELSE NOT __d.__gone END"
    counted: list[str] = []
    moved = ""
    if stage.exact:
        counted, moved, kept = _counted(stage, engine, stored_rows.there, kept)
    final = [f"__d.{engine.name(output.name)}" for output in stage.outputs]
    state = state_column(stage, [(name, f"__d.__at.{engine.name(name)}") for name, _ in PLACE], engine)
    texts = [
        *ctes(stage, engine, changed),
        f"__e AS (\n  SELECT\n    {columns(evaluated)}\n  FROM delta\n)",
        f"__d AS (\n  {newest}\n)",
        *stored_rows.relations,
        *counted,
    ]
    return f"""WITH {", ".join(texts)}
SELECT
    {columns([*final, *state, f"NOT __d.__gone AS {EXISTS}", stored_rows.row])}
  FROM {stored_rows.joined}{moved}
  WHERE {kept}"""


def _counted(stage: LatestStage, engine: Engine, there: str, kept: str) -> tuple[list[str], str, str]:
    """The relation of how many rows each key gets or loses, its join, and the condition that fails unless the newest
    event of the key leaves as many as there are: one or none."""
    keys = ", ".join(map(engine.name, stage.key))
    same = " AND ".join(f"__d.{name} = __m.{name}" for name in map(engine.name, stage.key))
    relation = f"""__m AS (
  SELECT {keys}, SUM(CASE WHEN __gone THEN -1 ELSE 1 END) AS __moved FROM __e GROUP BY {keys}
)"""
    left = f"CASE WHEN {there} THEN 1 ELSE 0 END + __m.__moved"
    wrong = f"{left} <> CASE WHEN __d.__gone THEN 0 ELSE 1 END"
    key = engine.struct([(name, f"__d.{engine.name(name)}") for name in stage.key])
    as_json = find("ROW_JSON")
    assert as_json is not None
    fails = engine.fail(DUPLICATE_KEY, "' '", left, "' '", as_json.write(engine.dialect, [key]))
    return [relation], f" JOIN __m ON {same}", f"CASE WHEN {wrong} THEN {fails} ELSE {kept} END"


# The rule of a bag: the rows that have come and not gone, of equal ones those that came last.
#
# self_old (copy, row)    Δ (offset, row, tombstone)      settled
# a 1, a 2                a 5, a 6 (true)                 a 5    exists=true   old=NULL
#                                                         a 1    exists=false  old=(a 1)
# b 3                     b 7                             b 7    exists=true   old=NULL


def bag_rule(stage: LatestStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    An event that takes a row away takes the oldest of the equal ones. So which copies are left does not depend on how
    the events are cut into epochs, and stored rows are looked at only where some of their hash go.

    Preconditions:
        1. The input is an event log with one partition, append-only, with the meta columns, `_tombstone` and the hash
           of the visible columns.
    """
    outputs = [engine.name(output.name) for output in stage.outputs]
    place = [(name, engine.name(name)) for name, _ in PLACE]
    came = [*((COPY, "_offset"), (ROW_HASH, ROW_HASH)), *place]
    kept = [(name, f"__o.{STATE}.{engine.name(name)}") for name, _ in hidden_columns(stage)]
    hash_of, copy_of = (f"__s.{STATE}.{name}" for name in (ROW_HASH, COPY))
    fails = f"CASE WHEN __gone > COALESCE(__there, 0) THEN {engine.fail(NEGATIVE_WEIGHT)} ELSE FALSE END"
    delta = ", ".join(ctes(stage, engine, changed))
    inserted = [*(f"__e.{name}" for name in outputs), *state_column(stage, came, engine)]
    deleted = [*(f"__o.{name}" for name in outputs), *state_column(stage, kept, engine)]
    return f"""WITH {delta}, __gone AS (
  SELECT {ROW_HASH} AS __hash, COUNT(*) AS __gone FROM delta WHERE {TOMBSTONE} GROUP BY {ROW_HASH}
), __e AS (
  SELECT
    {columns([*(typed(output, engine) for output in stage.outputs), *(name for _, name in place), ROW_HASH])}
  FROM delta WHERE NOT {TOMBSTONE}
), __o AS (
  SELECT /*+ BROADCAST(__gone) */ {stored("__s", engine)}, {copy_of} AS __of, {hash_of} AS __hash
  FROM self_old AS __s SEMI JOIN __gone ON {hash_of} = __gone.__hash
), __all AS (
  SELECT __of, __hash FROM __o UNION ALL SELECT _offset AS __of, {ROW_HASH} AS __hash FROM __e
), __left AS (
  SELECT __all.__of, ROW_NUMBER() OVER (PARTITION BY __all.__hash ORDER BY __all.__of) > COALESCE(__gone, 0) AS __stays
  FROM __all LEFT JOIN __gone ON __all.__hash = __gone.__hash
)
SELECT
    {columns([*inserted, f"TRUE AS {EXISTS}", old_row()])}
  FROM __e JOIN __left ON __e._offset = __left.__of LEFT JOIN __o ON FALSE
  WHERE __left.__stays
UNION ALL
SELECT
    {columns([*deleted, f"FALSE AS {EXISTS}", old_row()])}
  FROM __o JOIN __left ON __o.__of = __left.__of
  WHERE NOT __left.__stays
UNION ALL
SELECT
    {columns([*deleted, f"FALSE AS {EXISTS}", old_row()])}
  FROM __gone
    LEFT JOIN (SELECT __hash AS __one, COUNT(*) AS __there FROM __all GROUP BY __hash) AS __counted ON __hash = __one
    LEFT JOIN __o ON FALSE
  WHERE {fails}"""


# What a stage reads again: the inputs of which its rule needs rows that it has taken in already.
#
#     SELECT k, COUNT(*), MAX(v) FROM s GROUP BY k        delta_s                       looks back at nothing
#     s JOIN t ON s.k = t.k                               delta_s new_t  old_s delta_t  looks back at s and t
#     SELECT … FROM s WINDOW SESSION (…) GROUP BY k       delta_s new_s                 looks back at s
#
# It is read from the rule's own text, in which a runtime finds the relations to make: what the text does not name it
# is never given. The text for all inputs changed at once has the terms of every other one.


def looks_back(stage: Stage) -> frozenset[str]:
    """The names of the relations of which the stage's changes are computed from more than their changes."""
    every = frozenset(each.alias for each in inputs_of(stage))
    found: set[str] = set()
    written = 0
    for dialect in engines_for(stage):
        try:
            texts = (maintenance(stage, dialect), late_rows(stage, dialect, every), *_again(stage, dialect))
        except StrandlineError:
            continue  # an engine that lacks a function never runs the rule
        written += 1
        for text in (each for each in texts if each is not None):
            sides = relations(stage, text, engine_of(dialect))
            found |= {each.relation.name for _, side, each in sides if side != "delta"}
    return frozenset(found if written else (each.relation.name for each in inputs_of(stage)))


def _again(stage: Stage, dialect: Dialect) -> Iterator[str]:
    """The text of a recursion that is run where rows go."""
    if isinstance(stage, RecursiveStage):
        yield maintenance(stage, dialect, None)


# Proof that the text of a rule says every condition of its stage.
#
# A stage holds its conditions as trees: where its cores join and filter, what its calls are filtered by, which rows
# it keeps. Each core that a text reads must have its conditions there, in the engine's words; a core that a text
# leaves out, since nothing that it reads has moved, needs none.


def check_written(view: str, stage: Stage, text: str, engine: Engine) -> None:
    """Check that a rule's text has the conditions of its stage.

    Raises:
        ConditionLost: it lacks one.
    """
    if isinstance(stage, LatestStage):
        return
    for core in body_of(stage):
        for condition in _conditions(core) if _is_read(core, text, engine) else ():
            if not any(lower(form, engine.dialect) in text for form in _forms(core, condition)):
                raise ConditionLost.of(view, sql_of(condition))
    if isinstance(stage, AnalyticStage) and stage.keep is not None:
        _, keep = shown(stage)
        if keep is None or lower(keep, engine.dialect) not in text:
            raise ConditionLost.of(view, f"QUALIFY {sql_of(stage.keep)}")
    for call in stage.aggregates if isinstance(stage, AggregateStage) else ():
        name = filter_name(call, engine)
        if name is not None and call.filter is not None and text.count(name) <= text.count(f" AS {name}"):
            raise ConditionLost.of(view, f"{call.function} … FILTER (WHERE {sql_of(call.filter)})")


def _conditions(core: Core) -> Iterator[exp.Expression]:
    """Each condition of a core."""
    yield from (each.on for each in core.inputs if each.on is not None)
    if core.where is not None:
        yield core.where


def _forms(core: Core, condition: exp.Expression) -> Iterator[exp.Expression]:
    """The forms that a text may have a condition of a core in."""
    yield condition
    if condition is core.where:
        above = join_of(core).above.where
        assert above is not None
        yield above


def _is_read(core: Core, text: str, engine: Engine) -> bool:
    """True if the text joins the relations of a core."""
    names = (f"{side}_{each.alias}" for each in core.inputs for side in get_args(Side))
    return any(engine.name(name) in text for name in names)


# The number of the rows that came too late for their window and are left out: one more query over the same changes.
#
# Lateness is a property of the row, so the number is one of the inputs at a vector, as the rows of the view are: a
# row that is late counts from the epoch that takes it in, and one that is retracted later counts no more. A row
# counts once for each window that it missed, as in Kafka Streams.
#
# The rule itself filters these rows out below its joins and groups. To count them there would keep them in every
# step.


def late_rows(stage: Stage, dialect: Dialect, changed: Collection[str] | None) -> str | None:
    """The SELECT of one number: by how much the changes move the number of late rows. None: no row is ever late.

    Args:
        changed: the aliases of the inputs that moved; None: all rows there are.
    """
    if not isinstance(stage, AggregateStage) or not stage.late:
        return None
    engine = engine_of(dialect)
    number = engine.cast(f"COALESCE(SUM({WEIGHT}), 0)", BIGINT)
    return (
        f"SELECT {number} AS __late\nFROM (\n{changes(stage.late, engine, changed)}\n) AS delta{chosen(stage, engine)}"
    )
