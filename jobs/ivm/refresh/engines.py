"""The engines of a refresh: which one runs an epoch, that engine at work, and what its faults mean.

DuckDB takes tens of milliseconds where Spark takes seconds to plan the same text, and reads some tens of millions
of rows a second (docs/design/0010-kernel.md). So it runs what one machine can hold. The first refresh of a table, which
reads all there is, is shared by Spark's tasks where that is much (docs/design/0050-spread.md). What is left, and what
DuckDB cannot run after all (a function that DuckDB lacks, memory), is run by Spark's own plans.

An engine's text about a fault inside a rule's query, of rows or files, becomes an error of ours.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from strandline.jobs.engines.engine import DUPLICATE_KEY, FAILS_ON_A_ROW, NEGATIVE_WEIGHT, TOO_MANY_ROUNDS, Dialect
from strandline.jobs.ivm.refresh.late import with_late_rows
from strandline.jobs.ivm.refresh.runtime import maintain
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.errors import EngineRefused, FunctionFailed, RecursionEndless, RowFailed, revive
from strandline.jobs.model.stage import RecursiveStage, kept_with_stage
from strandline.state_store.digest import Digest
from strandline.state_store.errors import (
    CorruptState,
    DiskFailed,
    DuplicateKey,
    NegativeWeight,
    StrandlineError,
    VersionGone,
)
from strandline.state_store.layout import safe_name
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.refresh.runtime import Runtime
    from strandline.jobs.ivm.rules.spread import SpreadRule
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.errors import StoreError


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


# DuckDB says by the class of its error, and by how the text begins, what went wrong: the rest may be a user's own
# words. Of Spark the text is all that there is: its conditions stand in brackets.

_DUCKDB_SAYS_OF_A_ROW = (
    FAILS_ON_A_ROW,
    "Division by zero",
    # A pattern or a regular expression (in RE2's words) that comes from a row.
    *("missing ", "unexpected ", "no argument ", "bad ", "invalid ", "trailing ", "DuckDB does not know "),
)
_DUCKDB_KNOWS_NO_ZONE = "Unknown TimeZone"
_DUCKDB_CALLED = "Python exception occurred while executing the UDF: "
_SPARK_SAYS_OF_A_ROW = re.compile(
    r"\[(?:ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|CAST_INVALID_INPUT"
    r"|CAST_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION)[A-Z_.]*\][^\n]*"
    # A pattern or a time zone that comes from a row.
    r"|\[(?:INVALID_PARAMETER_VALUE|INVALID_TIMEZONE|INCONSISTENT_BEHAVIOR_CROSS_VERSION)[A-Z_.]*\][^\n]*"
    # A few functions on times let Java's own error through.
    r"|ArithmeticException: (?:long|integer) overflow"
    rf"|{FAILS_ON_A_ROW}[^\n]*"
)


def typed_fault(epoch: Epoch, error: Exception) -> StrandlineError | None:
    """The error that a fault stands for; None when it says nothing about rows or files."""
    import duckdb

    tables = [*(span.relation.name for span in epoch.spans), epoch.stage.table]
    text = str(error)
    of_duckdb = isinstance(error, duckdb.Error) and type(error) is not duckdb.Error
    said = text.partition(" Error: ")[2] if of_duckdb else text
    if _is_of_a_function(error, said) if of_duckdb else FunctionFailed.code in text:
        return revive(text)
    if said.startswith(NEGATIVE_WEIGHT) if of_duckdb else NEGATIVE_WEIGHT in text:
        return NegativeWeight(
            sentence("a row was taken away from '{}' that is not there", Name(epoch.stage.table)),
            where=_where(epoch),
            hint=sentence("verify its inputs; then drop '{}' and create it again", Name(epoch.stage.table)),
        )
    if said.startswith(DUPLICATE_KEY) if of_duckdb else DUPLICATE_KEY in text:
        return DuplicateKey(
            sentence(
                "a key of '{}' has more than one row in the table that it is read from{}",
                Name(epoch.stage.table),
                _key_in(text),
            ),
            where=_where(epoch),
            hint="delete all rows of that key there, write the one that counts again, and run; or declare it without a "
            "key: its rows are told apart by their values then",
        )
    if said.startswith(TOO_MANY_ROUNDS):
        return RecursionEndless.of(said.removeprefix(TOO_MANY_ROUNDS).split("\n")[0])
    row = _duckdb_says_of_a_row(error, text) if of_duckdb else _spark_says_of_a_row(text)
    if row is None:
        return file_fault(text, tables)
    return RowFailed(
        # Both go on with advice on their own settings.
        sentence("an expression of '{}' fails on a row: {}", Name(epoch.stage.table), row.split(". ")[0]),
        where=_where(epoch),
        hint="leave such rows out with WHERE, or TRY_CAST and NULLIF",
    )


def _key_in(text: str) -> str:
    """The key in the message of a key with several rows, and how many it has: `: id = 7 has 2`."""
    count, _, key = text.partition(DUPLICATE_KEY)[2].strip().partition(" ")
    try:
        found, _ = json.JSONDecoder().raw_decode(key)
    except ValueError:
        return ""
    named = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in found.items())
    return f": {named} has {count}" if count.isdecimal() and int(count) > 1 else f": {named}"


def _where(epoch: Epoch) -> Text:
    return sentence("{}, {}", Name(epoch.stage.table), epoch.record.reason)


def _is_of_a_function(error: Exception, said: str) -> bool:
    import duckdb

    called = isinstance(error, duckdb.InvalidInputException) and said.startswith(_DUCKDB_CALLED)
    return called and FunctionFailed.code in said


def _duckdb_says_of_a_row(error: Exception, text: str) -> str | None:
    """The first line of an error of DuckDB about a row; None for any other."""
    import duckdb

    line = text.split("\n")[0]
    said = line.partition(" Error: ")[2]
    match error:
        case duckdb.OutOfRangeException() | duckdb.ConversionException():
            return line
        case duckdb.InvalidInputException():
            return line if said.startswith(_DUCKDB_SAYS_OF_A_ROW) else None
        case duckdb.NotImplementedException():
            return said if said.startswith(_DUCKDB_KNOWS_NO_ZONE) else None
        case _:
            return None


def _spark_says_of_a_row(text: str) -> str | None:
    found = _SPARK_SAYS_OF_A_ROW.search(text)
    return found.group() if found is not None else None


# The meaning of a fault while an engine reads a file: which table's file is broken, or gone.
#
# The store checks what it reads itself (`state_store.delta.data_files`). Engines open files too, and say it in their
# words: Spark by a condition and the file, DuckDB by a sentence, and for some damage without the file's name.

_GONE = re.compile(
    r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND)\]"
    r"|IO Error: (?:No files found that match the pattern|Cannot open file [^\n]*: No such file)"
    # Of a file that a task had begun with.
    r"|java\.io\.FileNotFoundException: File "
)
_SPARK_BROKEN = re.compile(
    r"\[FAILED_READ_FILE\.(?:CANNOT_READ_FILE_FOOTER|NO_HINT|PARQUET_COLUMN_DATA_TYPE_MISMATCH)\]"
    r"|\[(?:PARQUET_CONVERSION_FAILURE|PARQUET_TYPE_[A-Z_]+)[A-Z_.]*\]"
    r"|is not a Parquet file|Could not read footer|CRC checksum verification failed|ChecksumException: Checksum error"
)
# At the begin of a line, behind the name of the exception where a text has it: elsewhere it may be a user's own words.
_DUCKDB_BROKEN = re.compile(
    r"^(?:[\w.]*(?:Error|Exception): )?(?:"
    r"(?:Invalid Input|IO) Error: (?:"
    r"No magic bytes|File [^\n]* too small to be a Parquet file|Footer length error|Failed to read (?:Parquet )?file"
    r"|Could not read enough bytes|Parquet file [^\n]*corrupted|Invalid string encoding found in Parquet file"
    r"|Snappy decompression|ZSTD [Dd]ecompression|[^\n]*[Pp]arquet file [^\n]*(?:corrupt|checksum))"
    # Of Parquet's own structures: these name no file.
    r"|Parquet file is likely corrupted|TProtocolException|Payload value bigger than allowed|Out of buffer"
    r"|don't know what type: )",
    re.MULTILINE,
)
# Spark says NO_HINT of these too; the file is as it was, and the next run may read it.
_PASSING = re.compile(
    r"Too many open files|No space left on device|Input/output error|Cannot allocate memory|OutOfMemoryError"
    r"|InterruptedIOException|ClosedByInterruptException|Permission denied|FAILED_READ_FILE\.UNSUPPORTED_FILE_SYSTEM"
)
# What does not fit into memory goes to a folder for temporary files; a full disk there is not the lake's.
_ASIDE = re.compile(
    r"^(?:[\w.]*Exception: )?IO Error: Could not write (?:all bytes to )?file \"([^\"\n]+)\"[^\n]*", re.MULTILINE
)
_FILE = re.compile(r"(?:file:/*)?(/[^'\"\n()]*?\.parquet)")


def file_fault(text: str, tables: Sequence[str]) -> StoreError | None:
    """The error that an engine's text about a file stands for; None when it speaks of none.

    Args:
        tables: the names of the tables that were read, to be told from the file's path.

    Returns:
        VersionGone for a missing file, CorruptState for a broken one, DiskFailed for one that could not be written.
        Where the text has no file's name, the error names all the tables.
    """
    aside = _ASIDE.search(text)
    if aside is not None:
        what = sentence("'{}' could not put rows aside: {}", Name(tables[-1]), aside.group().partition("IO Error: ")[2])
        return DiskFailed(what, where=aside[1], hint="free some space there (df -h), or set TMPDIR; then run again")
    if _PASSING.search(text):
        return None
    gone = _GONE.search(text)
    broken = gone or _SPARK_BROKEN.search(text) or _DUCKDB_BROKEN.search(text)
    if broken is None:
        return None
    named = _FILE.search(text, broken.start()) or _FILE.search(text)
    file = named[1] if named else None
    found = _tables_of(file, tables)
    whose = joined(" or ", (sentence("'{}'", Name(name)) for name in found))
    hint = sentence(
        "type: strandline verify {}; it tells what is broken",
        joined(" ", (Text(Name(name, shlex.quote)) for name in found)),
    )
    if gone:
        what = sentence("a data file of {} is gone", whose)
        return VersionGone(what, where=file, hint=sentence("{}; strandline rebuild NAME mends a table", hint))
    # The rest of the line has the file's name again, and Spark's advice on its own settings.
    return CorruptState(
        sentence("a data file of {} does not read back", whose),
        where=file or broken.group().strip("[] "),
        hint=sentence("{}; strandline rebuild NAME mends a table, or a backup of the lake's folder", hint),
    )


def _tables_of(file: str | None, tables: Sequence[str]) -> list[str]:
    """The table that a file belongs to; all of them where that cannot be told."""
    # Spark's paths are those of URLs: their percent signs are escaped once more.
    paths = (file, unquote(file)) if file is not None else ()
    return [name for name in tables if any(f"/{safe_name(name)}/" in path for path in paths)] or list(tables)
