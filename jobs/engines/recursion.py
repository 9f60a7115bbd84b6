"""WITH RECURSIVE in DuckDB's words: the rows that follow from others, round by round, until nothing new comes.

    UNION, of values that are there already     DuckDB's own: a set of finite values ends by itself
    UNION ALL                                   each row has the number of its round
    UNION, of values that are computed          the same, by key: DuckDB would take a row of another round for a new one

Spark has WITH RECURSIVE with UNION ALL alone, so DuckDB runs all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.jobs.engines.engine import Engine
from strandline.jobs.model.relation import ITSELF, LEVEL
from strandline.jobs.model.types import INT

TOO_MANY_ROUNDS: Final = "strandline: a recursion goes on beyond its rounds: "
"""The begin of the message with which it fails when rows still follow after the last round; their number follows."""


def rounds(
    names: Sequence[str], seed: str, steps: Sequence[str], engine: Engine, *, distinct: bool, levels: int | None
) -> str:
    """The relation `__itself` of all rows, to stand behind WITH RECURSIVE.

    Args:
        names: of the columns.
        seed: a SELECT of the rows to begin with.
        steps: SELECTs of what follows from the rows of `__itself`; with `levels` also of the `__level` of that row.
        distinct: rows are there once.
        levels: the most rounds; None: no row says in which it came.
    """
    columns = ", ".join(map(engine.name, names))
    following = "\n  UNION ALL\n".join(steps)
    itself, level = engine.name(ITSELF), engine.name(LEVEL)
    if levels is None:
        return f"{itself} ({columns}) AS (\n{seed}\n  UNION\nSELECT {columns} FROM (\n{following}\n) AS __steps\n)"
    error = engine.cast(engine.fail(f"{TOO_MANY_ROUNDS}{levels}"), INT)
    next_level = f"CASE WHEN __steps.{level} >= {levels} THEN {error} ELSE __steps.{level} + 1 END AS {level}"
    begin = f"SELECT {'DISTINCT ' if distinct else ''}{columns}, 0 AS {level} FROM (\n{seed}\n) AS __seed"
    if not distinct:
        return f"""{itself} ({columns}, {level}) AS (
{begin}
  UNION ALL
SELECT {columns}, {next_level} FROM (
{following}
) AS __steps
)"""
    shown = ", ".join(f"__steps.{engine.name(name)}" for name in names)
    same = " AND ".join(f"__steps.{name} IS NOT DISTINCT FROM __known.{name}" for name in map(engine.name, names))
    return f"""{itself} ({columns}, {level}) USING KEY ({columns}) AS (
{begin}
  UNION
SELECT {shown}, {next_level} FROM (
SELECT DISTINCT {columns}, {level} FROM (
{following}
) AS __all
) AS __steps ANTI JOIN recurring.{itself} AS __known ON {same}
)"""


def all_rounds(names: Sequence[str], engine: Engine, *, levels: int | None) -> str:
    """A SELECT of the rows of `__itself`. Of a column that nobody reads DuckDB would not compute the error."""
    where = f" WHERE {engine.name(LEVEL)} >= 0" if levels is not None else ""
    return f"SELECT {', '.join(map(engine.name, names))} FROM {engine.name(ITSELF)}{where}"
