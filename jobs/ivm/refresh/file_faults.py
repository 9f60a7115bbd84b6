"""The meaning of a fault while an engine reads a file: which table's file is broken, or gone.

The store checks what it reads itself (`state_store.delta.data_files`). Engines open files too, and say it in their
words: Spark by a condition and the file, DuckDB by a sentence, and for some damage without the file's name.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import unquote

from strandline.state_store.errors import CorruptState, DiskFailed, VersionGone
from strandline.state_store.layout import safe_name
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.errors import StoreError

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
