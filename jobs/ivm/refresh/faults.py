"""The meaning of a fault inside a rule's query: an engine's text about rows or files becomes an error of ours."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import unquote

from strandline.jobs.engines.engine import DUPLICATE_KEY, FAILS_ON_A_ROW, NEGATIVE_WEIGHT, TOO_MANY_ROUNDS
from strandline.jobs.model.errors import FunctionFailed, RecursionEndless, RowFailed, revive
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
    from collections.abc import Sequence

    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.state_store.errors import StoreError


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
            sentence("a key of '{}' has more than one row in the table that it is read from", Name(epoch.stage.table)),
            where=_where(epoch),
            hint="declare it without a key: its rows are told apart by their values then",
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
