"""The recomputation: a whole query as one plain SELECT over its relations, without stages and rules.

It is the oracle of the incremental engine: DuckDB runs it, and a view must equal its result. The relations are read by
their names and have their visible, meta and hidden columns. The text follows SQL's order of evaluation, one subquery
inside the next:

    FROM … WHERE …        the columns that are needed, `alias.column` as one name; items of EXPLODE    from_where
    WINDOW …              a row for each window, late rows left out                                    windows
    GROUP BY … HAVING …   groups and calls by their plain names                                        groups, calls
    OVER …, QUALIFY       a column for each call, and a WHERE over them                                over
    SELECT [DISTINCT] …   the outputs

    SELECT k, COUNT(*) AS n FROM s GROUP BY k
    -> SELECT CAST("k" AS VARCHAR) AS "k", CAST("__a0" AS BIGINT) AS "n" FROM (
         SELECT "k", CAST(COUNT(*) AS BIGINT) AS "__a0" FROM (
           SELECT CAST("s.k" AS VARCHAR) AS "k" FROM (
             SELECT "s"."k" AS "s.k" FROM "s" AS "s")) GROUP BY "k")
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.functions.failing import strict
from strandline.jobs.functions.failing_rows import truth
from strandline.jobs.model.columns import PARTITIONS_EACH, WINDOW_BOUNDS
from strandline.jobs.model.stage import Output
from strandline.jobs.model.view_options import Semantics
from strandline.jobs.query.logical.keys import identity
from strandline.jobs.query.logical.query import Block, Query, SetOperation
from strandline.jobs.query.logical.read_through import is_plain
from strandline.jobs.query.recompute.failed_rows import (
    ROW_FAILS,
    check_of,
    check_of_groups,
    flag,
    flags_of,
    marked,
    needed_of,
    unsure,
)
from strandline.jobs.query.recompute.from_where import meta_column, rows
from strandline.jobs.query.recompute.groups import event_order, grouped
from strandline.jobs.query.recompute.over import analytic
from strandline.jobs.query.recompute.text import Fate, FrozenJoin, Recomputation
from strandline.jobs.query.recompute.windows import clock, in_windows


def recompute_sql(
    query: Query,
    dialect: Dialect,
    *,
    fate: Fate,
    semantics: Semantics = "sql",
    shared: bool = False,
    frozen: FrozenJoin | None = None,
    nested: Mapping[str, Query] | None = None,
) -> str:
    """The query as text for an engine.

    Args:
        fate: of the rows on which an expression fails; a row fails here if it does in a view of the query.
        shared: the view has STATE = 'shared'.
        semantics: of the view. With `ksql` rows with a null in a group key are left out. With either, a group that has
            lost all its rows is not in the result: the relations do not hold that it once existed.
        frozen: the condition that a row of a frozen input existed when an event arrived; None: all of them did.
        nested: the queries inside the expressions of a pull query, for DuckDB.

    Raises:
        NotSupported: the engine has no function of its own for an aggregate.
    """
    return _query(query, Recomputation(engine_of(dialect), semantics, frozen, _query, fate, shared, nested or {}))


def _query(query: Query, recompute: Recomputation, more: tuple[str, ...] = (), is_open: bool = False) -> str:
    """The text of a query; `more` are meta columns wanted beside the outputs.

    Args:
        is_open: with the flags of `jobs.query.recompute.failed_rows`.
    """
    if isinstance(query, SetOperation):
        return _set_operation(query, recompute, more, is_open=is_open)
    return _block(query, recompute, more, is_open=is_open and is_plain(query))


def _set_operation(query: SetOperation, recompute: Recomputation, more: tuple[str, ...], *, is_open: bool) -> str:
    texts = []
    name_of = recompute.name
    flags = sorted(unsure(query, recompute)) if is_open else []
    for number, branch in enumerate(_branches(query), 1):
        names = [each.name if isinstance(each, Output) else each[0] for each in branch.outputs]
        columns = [
            f"{recompute.engine.cast(name_of(own), sql_type)} AS {name_of(name)}"
            for own, (name, sql_type) in zip(names, query.outputs, strict=True)
        ]
        columns += [f"{name} + {number * PARTITIONS_EACH} AS {name}" if name == "_partition" else name for name in more]
        own_flags = unsure(branch, recompute) if is_open else frozenset()
        given = {ROW_FAILS: ROW_FAILS, **{name: own for own, (name, _) in zip(names, query.outputs, strict=True)}}
        for name in flags:
            value = name_of(flag(given[name])) if given[name] in own_flags else "FALSE"
            columns.append(f"{value} AS {name_of(flag(name))}")
        texts.append(f"SELECT {', '.join(columns)} FROM ({_query(branch, recompute, more, is_open)}) AS __b")
    text = texts[0]
    for each in texts[1:]:
        text = f"({text}) {query.operation.upper()} ({each})"
    return text


def _branches(query: SetOperation) -> list[Query]:
    """The branches, with those of a UNION ALL inside a UNION ALL in its place."""
    found: list[Query] = []
    for branch in query.branches:
        nested = isinstance(branch, SetOperation) and branch.operation == query.operation == "union all"
        found += _branches(branch) if nested and isinstance(branch, SetOperation) else [branch]
    return found


def _block(block: Block, recompute: Recomputation, more: tuple[str, ...], *, is_open: bool) -> str:
    block = marked(block, recompute)
    meta = {name: column for name in more if (column := meta_column(block, name)) is not None}
    groups = block.group is not None or bool(block.calls)
    order = event_order(block).values()
    apart = identity(block) if block.analytic and not groups else []
    clocks = [clock(block.time)] if block.time is not None else []
    check = check_of(block, recompute, () if is_open else tuple(needed_of(block)))
    flags = flags_of(block, check) if is_open else {}
    text = rows(block, recompute, check, (*meta.values(), *order, *apart, *clocks, *flags.values()), passing=is_open)
    if block.window is not None:
        text = in_windows(text, block, recompute)
    if groups:
        text = grouped(text, block, recompute)
    if block.analytic:
        names = [recompute.name(group.name) for group in block.group or ()]
        names += WINDOW_BOUNDS if block.window is not None else []
        text = analytic(text, block, recompute, names if groups else [recompute.after(each) for each in apart])
    whole = bool(block.analytic) or (groups and check_of_groups(block) is None)
    if block.qualify is not None:
        kept = block.qualify if recompute.fate == "null" else strict(block.qualify)
        text = f"SELECT * FROM ({text}) AS __q WHERE {recompute.total_after(kept)}"
    outputs = [recompute.value(each, whole=whole) for each in block.outputs]
    outputs += [f"{recompute.after(column)} AS {recompute.name(name)}" for name, column in meta.items()]
    outputs += [f"{recompute.total_after(truth(each))} AS {recompute.name(flag(name))}" for name, each in flags.items()]
    return f"SELECT {'DISTINCT ' if block.distinct else ''}{', '.join(outputs)} FROM ({text}) AS __s"
