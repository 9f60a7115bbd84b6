"""The two forms of a stage's rows: as its table stores them, and *settled*, as each rule of a keyed table gives them.

Stored are the visible columns, and the struct `__state` beside them:

| stage | storage | `__state` |
| --- | --- | --- |
| map, all inputs append | append | none |
| map | keyed | the columns of the body that are not visible: key columns, an event's time and place, a row's place |
| latest | keyed | time and place of the newest event: `EVENT_ORDER`, `_timestamp` |
| latest, of a bag | keyed | the key, the hash of the values; time and place of the event that brought the row |
| aggregate | keyed | the group columns that are not visible, `__rows` (rows in the group), an accumulator per call |
| aggregate by session | keyed | the group columns and bounds that are not visible, `__rows` |
| analytic | keyed | the key and partition columns that are not visible |

Settled is the result that all rules of keyed tables share. A rule's text reads these and gives one row per touched key:

    delta      the changes of the stage's body (`jobs.ivm.rules.delta_join`): its columns, `__weight` BIGINT (+1 an
               insertion, −1 a retraction) and `__step` INT. Of one body key the last row by (step, weight) is its
               state after the epoch: rows of an earlier step may be retracted in a later one
    body_new   all rows of the body, where a rule asks for them
    self_old   the stored rows before the epoch, with `__state`, and their places: `__file`, `__position`

    settled    the stored columns of the new row | `__exists`: false when the key is deleted (the other columns then
               hold only the key) | `__old`: struct of the row stored before and its place, NULL when the key was absent
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.functions.render import lower
from strandline.jobs.model.stage import PART, AggregateStage, MapStage, Output, Stage, body_of, kept_with_stage
from strandline.jobs.model.stage_columns import (
    Columns,
    hidden_columns,
    key_names,
    key_path,
    storage_of,
    visible_columns,
)
from strandline.jobs.model.tables import EVENT_ORDER, Relation
from strandline.jobs.model.types import BIGINT, SqlType, struct
from strandline.state_store.tablespec import EXISTS, OLD, POSITION, STATE, VERSION, WEIGHT, TableSpec

ROWS = "__rows"
_MARK = "."
_PLACES_FORM: Final = 3
"""Higher than those of accumulators: before it, lists over subqueries of tables were in another order."""
_VALUES_FORM: Final = 5
"""Before it, the different values of a group were an array in its row."""
_CONSTANTS_FORM: Final = 4
"""Before it, the condition by which the first relation joins constants was lost, and rows were stored that fail it."""


def state_type(stage: Stage) -> SqlType | None:
    """The struct `__state`; None when the stage needs none."""
    fields = hidden_columns(stage)
    if isinstance(stage, AggregateStage):
        fields += ((ROWS, BIGINT),)
        if stage.session is None:
            kept = ((call, function) for call in stage.aggregates if (function := function_of(call)).kept)
            fields += tuple((call.name, function.accumulator(call)) for call, function in kept)
    return struct(*fields) if fields else None


def stored_columns(stage: Stage) -> Columns:
    """Every stored column: the visible ones, then `__state` if there is one."""
    state = state_type(stage)
    return (*visible_columns(stage), (STATE, state)) if state else visible_columns(stage)


def form_of(stages: Iterable[Stage]) -> int:
    """The number of the form in which the stages store rows: that of their newest accumulator, of places, of joins
    with constants, or of values."""
    stages = tuple(stages)
    forms = [_PLACES_FORM] if any(map(_keeps_places, stages)) else []
    forms += [_CONSTANTS_FORM] if any(map(_joins_constants, stages)) else []
    forms += [_VALUES_FORM] if any(map(reads_values, stages)) else []
    forms += [
        function_of(call).form(call)
        for stage in stages
        if isinstance(stage, AggregateStage) and stage.session is None
        for call in stage.aggregates
    ]
    return max(forms, default=1)


def _keeps_places(stage: Stage) -> bool:
    """True if a stage keeps the places of rows that are no events."""
    hidden = {name for name, _ in hidden_columns(stage)} if isinstance(stage, MapStage) else set()
    return hidden.issuperset(EVENT_ORDER) and "_timestamp" not in hidden


def reads_values(stage: Stage) -> bool:
    """True if a stage reads the different values of its groups from inner stages."""
    return isinstance(stage, AggregateStage) and any(each.name == PART for each in stage.body[0].columns)


def _joins_constants(stage: Stage) -> bool:
    """True if the first relation of a core joins constants."""
    return any(core.inputs and not core.inputs[0].joins_nothing for core in body_of(stage))


def marked(fingerprint: str, stages: Iterable[Stage]) -> str:
    """The fingerprint that a definition's commits carry: its own, marked where `__state` is in a later form.

    A version that stored sums otherwise left commits without the mark, or with another: their rows are not misread.
    """
    form = form_of(stages)
    return fingerprint if form == 1 else f"{fingerprint}{_MARK}{form}"


def unmarked(fingerprint: str) -> str:
    """The definition's own part of a fingerprint."""
    return fingerprint.partition(_MARK)[0]


@kept_with_stage
def spec_of(stage: Stage) -> TableSpec:
    """The table that a stage is stored in."""
    state = state_type(stage)
    return TableSpec(
        name=stage.table,
        columns=tuple((name, sql_type.spark()) for name, sql_type in visible_columns(stage)),
        storage=storage_of(stage),
        key=tuple(".".join(key_path(stage, name)) for name in key_names(stage)),
        state=state.spark() if state else None,
    )


# The consolidated changes of a keyed relation over several commits, as SQL: rules read these.
#
#     _commit_version   k v weight          consolidated
#     5                 a 1 (−1), a 2 (+1)  a 1 (−1), a 3 (+1)
#     6                 a 2 (−1), a 3 (+1)
#     5                 b 7 (+1)            (nothing: b was not there before and is not there now)
#     6                 b 7 (−1)
#
# Without this a value that existed only between two commits could win a MAX.


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


PRESENT = "__present"
_ROW = "__whole"
STEP = "__step"
_SAME = "IS NOT DISTINCT FROM"


def render(expression: exp.Expression, engine: Engine) -> str:
    """An expression of a stage, for one engine."""
    return lower(expression, engine.dialect)


def value_of(output: Output, engine: Engine) -> str:
    """An output, as exactly its type."""
    return engine.cast(render(output.expression, engine), output.type)


def typed(output: Output, engine: Engine) -> str:
    """An output as a column of a SELECT."""
    return f"{value_of(output, engine)} AS {engine.name(output.name)}"


@dataclass(frozen=True)
class Before:
    """The stored rows `__o` beside the touched keys `__d`, in a rule's text.

    Attributes:
        relations: common table expressions that come after `__d`.
        joined: what stands in FROM: each row of `__d`, with the stored row of its key where there is one.
        there: the condition that there is one.
        row: it, as a struct with its place, by which the commit finds it; NULL where there is none.
    """

    relations: tuple[str, ...]
    joined: str
    there: str
    row: str


def before(stage: Stage, engine: Engine) -> Before:
    """How a rule reads the stored rows of its keys.

    Spark would sort all stored rows to join them with a few changes; a semi join with the few on the small side reads
    past the others. The hint says which side that is. DuckDB makes the table of a join of its smaller side, and passes
    its keys on to the files of the other: it reads as little without the semi join, and saves one join in each epoch.
    """
    if engine.dialect == "duckdb":
        same, there = same_key(stage, engine), f"__o.{POSITION} IS NOT NULL"
        joined = (
            f"self_old AS __o RIGHT JOIN __d ON {same}" if key_names(stage) else "__d LEFT JOIN self_old AS __o ON TRUE"
        )
        return Before((), joined, there, f"CASE WHEN {there} THEN {engine.row('__o')} END AS {OLD}")
    where = ""
    if key_names(stage):
        where = f" SEMI JOIN __d ON {same_key(stage, engine, stored_as='__s')}"
    relation = f"""__o AS (
  SELECT /*+ BROADCAST(__d) */ {stored("__s", engine)}
  FROM self_old AS __s{where}
)"""
    return Before((relation,), f"__d LEFT JOIN __o ON {same_key(stage, engine)}", f"__o.{PRESENT}", old_row())


def stored(alias: str, engine: Engine) -> str:
    """The columns of stored rows, each row as a struct, and the mark that it is there."""
    return f"{alias}.*, {engine.row(alias)} AS {_ROW}, TRUE AS {PRESENT}"


def same_key(stage: Stage, engine: Engine, stored_as: str = "__o") -> str:
    """The condition that row `__d` and the stored row have the same key; NULL is a key like any other."""
    pairs = []
    for name in key_names(stage):
        stored = ".".join([stored_as, *(engine.name(step) for step in key_path(stage, name))])
        pairs.append(f"__d.{engine.name(name)} {_SAME} {stored}")
    return " AND ".join(pairs) or "TRUE"


def without_null_keys(stage: Stage, text: str, engine: Engine) -> str:
    """A rule's text for stored rows of which no key column is NULL. DuckDB passes equalities down to the files, and no
    other condition: of a file it then reads few rows beside those of the touched keys."""
    same = same_key(stage, engine)
    return text.replace(f"RIGHT JOIN __d ON {same}", f"RIGHT JOIN __d ON {same.replace(_SAME, '=')}")


def old_row() -> str:
    """The column `__old`: the stored row with its place, by which the commit finds it."""
    return f"CASE WHEN __o.{PRESENT} THEN __o.{_ROW} END AS {OLD}"


def state_column(stage: Stage, fields: Sequence[tuple[str, str]], engine: Engine) -> list[str]:
    """The column `__state` of those fields, or no column when the stage keeps none."""
    sql_type = state_type(stage)
    return [f"{engine.cast(engine.struct(fields), sql_type)} AS {STATE}"] if sql_type else []


def columns(parts: Sequence[str]) -> str:
    """A SELECT list, a line for each column."""
    return ",\n    ".join(parts)


# Rows computed anew, compared with the stored rows: the settled form of stages that merge no changes.
#
#     fresh (k, v)     self_old (k, v)      settled
#     a 1              a 1                  -                             equal: nothing to do
#     b 5              b 2                  b 5     exists=true   old=(b 2)
#     c 7                                   c 7     exists=true   old=NULL
#                      d 9                  d NULL  exists=false  old=(d 9)
#
# Rules that compute touched parts again compare those parts only; a refresh that computes everything compares all
# rows.


def difference(stage: Stage, fresh: str, engine: Engine, part: str | None = None) -> str:
    """The settled form of all rows, compared with the stored rows: those that differ, are missing or are new.

    Args:
        fresh: a relation (a name, or a query in parentheses) of the stored columns of all rows, computed anew.
        part: the condition that the rows in `fresh` meet, when they are not all: stored rows that do not meet it are
            left alone. It must not tell apart two rows of one key.
    """
    before = f"SELECT * FROM self_old AS __s{f' WHERE {part}' if part is not None else ''}"
    return f"""WITH {marked_new("__n", f"SELECT * FROM {fresh} AS __f")}, {marked_stored(before, engine)}
{settled(stage, engine)}"""


def marked_new(name: str, rows: str) -> str:
    """The relation `name`: rows with a mark, so that a missing row can be told from one of NULLs."""
    return f"{name} AS (\n  SELECT *, TRUE AS {PRESENT} FROM (\n  {rows}\n  ) AS __rows_of{name}\n)"


def marked_stored(rows: str, engine: Engine) -> str:
    """The relation `__o`: stored rows with a mark, and each as a struct."""
    return f"__o AS (\n  SELECT {stored('__rows_of__o', engine)} FROM (\n  {rows}\n  ) AS __rows_of__o\n)"


def only_touched(alias: str, names: Sequence[str], values: Sequence[str] | None = None) -> str:
    """The semi join that keeps the rows of touched parts: those in the relation `__t` of distinct `names`.

    NULL is a part like any other.

    Args:
        values: the paths of these columns in the rows of `alias`, where they differ from `names`.
    """
    pairs = zip(values or names, names, strict=True)
    same = [f"{alias}.{value} IS NOT DISTINCT FROM __t.{name}" for value, name in pairs]
    return f" SEMI JOIN __t ON {' AND '.join(same)}"


def settled(stage: Stage, engine: Engine) -> str:
    """The SELECT that compares the marked relations `__n` (the rows to be stored) and `__o` (the stored rows).

    Both hold the stored columns; `__o` has all stored rows that `__n` may replace, and those to delete.
    """
    parts = [_column(stage, name, engine) for name, _ in stored_columns(stage)]
    parts.append(f"COALESCE(__n.{PRESENT}, FALSE) AS {EXISTS}")
    parts.append(old_row())
    return f"""SELECT
    {columns(parts)}
  FROM __n FULL JOIN __o ON {_same_key(stage, engine)}{_where_differs(stage, engine)}"""


def _column(stage: Stage, name: str, engine: Engine) -> str:
    """A column of the result. A deleted row holds its key, and nothing else that is visible."""
    quoted = engine.name(name)
    if name in key_names(stage) or name == STATE:
        return f"CASE WHEN __n.{PRESENT} THEN __n.{quoted} ELSE __o.{quoted} END AS {quoted}"
    return f"__n.{quoted} AS {quoted}"


def _same_key(stage: Stage, engine: Engine) -> str:
    """NULL is a key like any other; without a key there is one row."""
    paths = [".".join(engine.name(step) for step in key_path(stage, name)) for name in key_names(stage)]
    return " AND ".join(f"__n.{path} IS NOT DISTINCT FROM __o.{path}" for path in paths) or "TRUE"


def _where_differs(stage: Stage, engine: Engine) -> str:
    """The WHERE clause that leaves out unchanged rows; none where they hold a MAP: the store finds those by itself."""
    columns = stored_columns(stage)
    if any(has_map(sql_type) for _, sql_type in columns):
        return ""
    names = [engine.name(name) for name, _ in columns]
    differs = [f"__n.{name} IS DISTINCT FROM __o.{name}" for name in names]
    return f"\n  WHERE {' OR '.join([f'__n.{PRESENT} IS NULL', f'__o.{PRESENT} IS NULL', *differs])}"
