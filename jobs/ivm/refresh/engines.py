"""The choice of who runs an epoch, and that engine at work: DuckDB in this process or in Spark's tasks, or Spark.

DuckDB takes tens of milliseconds where Spark takes seconds to plan the same text, and reads some tens of millions
of rows a second (docs/design/0010-kernel.md). So it runs what one machine can hold. The first refresh of a table, which
reads all there is, is shared by Spark's tasks where that is much (docs/design/0050-spread.md). What is left, and what
DuckDB cannot run after all (a function that DuckDB lacks, memory), is run by Spark's own plans.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.engines.engine import Dialect
from strandline.jobs.ivm.refresh.late import with_late_rows
from strandline.jobs.ivm.refresh.runtime import maintain
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.errors import EngineRefused
from strandline.jobs.model.stage import RecursiveStage, kept_with_stage
from strandline.state_store.digest import Digest
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.refresh.runtime import Runtime
    from strandline.jobs.ivm.rules.spread import SpreadRule
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Head


log = logging.getLogger("strandline")

MOST_ROWS: Final = 100_000_000
"""The rows that DuckDB reads for one epoch: some five seconds. Beyond, starting Spark's tasks costs little of the
whole, and the rows may be more than one machine's memory can group or sort."""

Done = tuple["CommitRecord", "Head | None"]
"""The epoch's record with what only the rows can say, and its commit; None, and no commit, when no row changes."""


def run(context: RunContext, epoch: Epoch, *, anew: bool) -> Done:
    """Run an epoch's rule by the engine that suits it, and commit.

    Args:
        anew: see `runtime.maintain`.

    Raises:
        EngineRefused: the engine cannot run the rule, and the other is not here, or not wanted.
        Exception: whatever the engine says of the rows; see `faults`.
    """
    rule = _spread_rule(context, epoch)
    if rule is not None:
        done = _by_tasks(context, epoch, rule)
        if done is not None:
            return done
    engine, why = choose(context, epoch)
    try:
        if engine == "duckdb":
            return _by_duckdb(context, _said(epoch, f"by DuckDB: {why}"), anew=anew)
    except EngineRefused as refused:
        if context.sessions is None or context.engine != "auto" or isinstance(epoch.stage, RecursiveStage):
            raise
        log.warning("'%s' is refreshed by Spark: %s", epoch.stage.table, refused.message)
        why = refused.message
    return _by_spark(context, _said(epoch, f"by Spark: {why}"), anew=anew)


def choose(context: RunContext, epoch: Epoch) -> tuple[Dialect, str]:
    """The engine that suits an epoch, and why.

    Raises:
        EngineRefused: it is DuckDB's alone, which is not here or not wanted.
    """
    if isinstance(epoch.stage, RecursiveStage):
        if context.engine == "spark" or context.duckdb_engine is None:
            raise EngineRefused(
                "Spark has no recursion with UNION: DuckDB runs WITH RECURSIVE",
                where=Text(Name(epoch.stage.table)),
                hint="set STRANDLINE_ENGINE=auto, so that DuckDB runs what Spark cannot",
            )
        return "duckdb", "Spark has no recursion with UNION"
    if context.engine != "auto":
        return context.engine, f"STRANDLINE_ENGINE={context.engine}"
    # Of all inputs, and of the table itself: the most that the rule can ask for.
    heads = (epoch.head, *(span.head for span in epoch.spans))
    rows = sum(Digest.parse(head.record.digest).count for head in heads)
    if context.duckdb_engine is None:
        return "spark", "there is no DuckDB engine here"
    return "spark" if rows > MOST_ROWS else "duckdb", f"{rows:,} rows at most"


def _spread_rule(context: RunContext, epoch: Epoch) -> SpreadRule | None:
    """The texts by which tasks share the epoch; None where one of them does it all."""
    spread, before = context.spread, epoch.head.record
    if spread is None or context.engine != "auto" or context.duckdb_engine is None:
        return None
    rows = {span.relation.name: span.head.record.rows for span in epoch.spans}
    if sum(rows.values()) < spread.fewest_rows or not epoch.first or before.rows or before.epoch:
        return None
    from strandline.jobs.ivm.rules.spread import spread_rule

    found = spread_rule(epoch.stage, rows)
    return found if found is not None and spread.most_parts(found.rows, found.whole) >= 2 else None


def _said(epoch: Epoch, how: str) -> Epoch:
    return replace(epoch, record=replace(epoch.record, reason=sentence("{}; {}", epoch.record.reason, how)))


def _by_spark(context: RunContext, epoch: Epoch, *, anew: bool) -> Done:
    if context.sessions is None:
        raise EngineRefused(
            sentence("it is Spark's to do, and there is no session here: {}", epoch.record.reason),
            where=Text(Name(epoch.stage.table)),
            hint="set STRANDLINE_ENGINE=duckdb, so that DuckDB does it nevertheless",
        )
    from strandline.jobs.ivm.refresh.on_spark import SparkRuntime

    with context.sessions.lent() as session:
        runtime = SparkRuntime(session, context, epoch)
        done = _maintained(runtime, epoch, anew=anew)
        runtime.close()
    return done


def _by_tasks(context: RunContext, epoch: Epoch, rule: SpreadRule) -> Done | None:
    """The epoch in tasks that share it; None when a text fails there.

    A part may add up to what no type holds where the whole does not. What one task says of the rows is right.
    """
    if context.sessions is None:
        rows = sum(span.head.record.rows for span in epoch.spans)
        raise EngineRefused(
            f"tasks share it, and there is no session here: {rows:,} rows", where=Text(Name(epoch.stage.table))
        )
    import duckdb

    from strandline.jobs.ivm.refresh import on_spark

    with context.sessions.lent() as session:
        try:
            return on_spark.refresh(session, context, epoch, rule)
        except duckdb.Error as wrong:
            log.warning("'%s' is not shared by tasks: %s", epoch.stage.table, str(wrong).splitlines()[0])
            return None


def _by_duckdb(context: RunContext, epoch: Epoch, *, anew: bool) -> Done:
    from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime

    assert context.duckdb_engine is not None, "a run that wants DuckDB has one"
    with context.duckdb_engine.connection() as connection, duckdb_refusals(epoch.stage):
        return _maintained(DuckDbRuntime(context, connection, epoch), epoch, anew=anew)


@contextmanager
def duckdb_refusals(stage: Stage) -> Iterator[None]:
    """What DuckDB says of a rule's text becomes EngineRefused; what it says of rows is left as it is."""
    import duckdb

    # A function or clause that it lacks, and that it has not enough memory.
    refusals = (
        duckdb.CatalogException,
        duckdb.BinderException,
        duckdb.ParserException,
        duckdb.NotImplementedException,
        duckdb.OutOfMemoryException,
    )
    try:
        yield
    except refusals as error:
        raise EngineRefused(
            f"DuckDB cannot run its rule: {str(error).splitlines()[0]}",
            where=Text(Name(stage.table)),
            hint="set STRANDLINE_ENGINE=auto, so that Spark runs what DuckDB cannot",
        ) from error


def _maintained(runtime: Runtime[Any], epoch: Epoch, *, anew: bool) -> Done:
    record = with_late_rows(runtime, epoch.stage, epoch.record, epoch.moved)
    text = _text_of(epoch.stage, runtime.dialect, epoch.moved)
    return record, maintain(runtime, epoch.stage, text, record, anew=anew)


@kept_with_stage
def _text_of(stage: Stage, dialect: Dialect, moved: frozenset[str] | None) -> str:
    return maintenance(stage, dialect, moved)
