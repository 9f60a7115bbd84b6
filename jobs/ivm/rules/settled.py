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

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.stored import state_type, stored_columns
from strandline.jobs.model.stage import Output, Stage
from strandline.jobs.model.stage_columns import key_names, key_path
from strandline.state_store.tablespec import FILE, OLD, POSITION, STATE

PRESENT = "__present"
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


def before(stage: Stage, engine: Engine) -> str:
    """The relation `__o`: the stored rows of the touched keys, with a mark that tells a row from a missing one.

    Spark would sort all stored rows to join them with a few changes; a semi join with the few on the small side reads
    past the others. The hint says which side that is; for DuckDB it is a comment.
    """
    if not key_names(stage):
        return f"__o AS (SELECT *, TRUE AS {PRESENT} FROM self_old)"
    return f"""__o AS (
  SELECT /*+ BROADCAST(__d) */ __s.*, TRUE AS {PRESENT}
  FROM self_old AS __s SEMI JOIN __d ON {same_key(stage, engine, stored_as="__s")}
)"""


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
    same = same_key(stage, engine, stored_as="__s")
    return text.replace(f"SEMI JOIN __d ON {same}", f"SEMI JOIN __d ON {same.replace(_SAME, '=')}")


def old_row(stage: Stage, engine: Engine) -> str:
    """The column `__old`: the stored row with its place, by which the commit finds it."""
    names = [*(name for name, _ in stored_columns(stage)), FILE, POSITION]
    row = engine.struct([(name, f"__o.{engine.name(name)}") for name in names])
    return f"CASE WHEN __o.{PRESENT} THEN {row} END AS {OLD}"


def state_column(stage: Stage, fields: Sequence[tuple[str, str]], engine: Engine) -> list[str]:
    """The column `__state` of those fields, or no column when the stage keeps none."""
    sql_type = state_type(stage)
    return [f"{engine.cast(engine.struct(fields), sql_type)} AS {STATE}"] if sql_type else []


def columns(parts: Sequence[str]) -> str:
    """A SELECT list, a line for each column."""
    return ",\n    ".join(parts)
