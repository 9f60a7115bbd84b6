"""The *settled* form of a refresh, as SQL: the result that all rules of keyed tables share.

A rule's text reads these and gives one row per touched key:

    delta      the changes of the stage's body (`jobs.ivm.rules.delta_join`): its columns, `__weight` BIGINT (+1 an
               insertion, −1 a retraction) and `__step` INT. Of one body key the last row by (step, weight) is its
               state after the epoch: rows of an earlier step may be retracted in a later one
    body_new   all rows of the body, where a rule asks for them
    self_old   the stored rows before the epoch, with `__state`, and their places: `__file`, `__position`

    settled    the stored columns of the new row | `__exists`: false when the key is deleted (the other columns then
               hold only the key) | `__old`: struct of the row stored before and its place, NULL when the key was absent
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.stored import state_type, stored_columns
from strandline.jobs.model.stage import Output, Stage
from strandline.jobs.model.stage_columns import key_names, key_path
from strandline.state_store.tablespec import EXISTS, OLD, POSITION, STATE

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
    return f"""WITH {marked("__n", f"SELECT * FROM {fresh} AS __f")}, {marked_stored(before, engine)}
{settled(stage, engine)}"""


def marked(name: str, rows: str) -> str:
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
