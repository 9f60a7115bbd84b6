"""What engines say of files that are broken or gone, as errors of ours that name the table."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.jobs.ivm.refresh.engines import file_fault, typed_fault
from strandline.jobs.model.errors import RowFailed
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import CorruptState, DiskFailed, VersionGone
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk

TABLES = ("visits", "page views", "totals")
FILE = "/lake/tables/visits/epoch-3-0f/part-0.parquet"

# The conditions and their sentences are those of Spark's error-conditions.json; the causes are Parquet's and Hadoop's.
BROKEN = [
    f"[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file file://{FILE}. Could not read "
    "footer. Please ensure that the file is in either ORC or Parquet format. SQLSTATE: KD001",
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "3.0 (TID 7) (localhost executor driver): org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered "
    f"error while reading file file://{FILE}.  SQLSTATE: KD001\n\tat org.apache.spark.sql.errors.QueryExecutionErrors$",
    f"[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file file://{FILE}. Data "
    "type mismatches when reading Parquet column [k]. Expected Spark type bigint, actual Parquet type BINARY.",
    f"java.lang.RuntimeException: file:{FILE} is not a Parquet file. Expected magic number at tail, but found [1, 2]",
    f"java.io.IOException: Could not read footer for file: FileStatus{{path=file:{FILE}; isDirectory=false}}",
    "org.apache.parquet.io.ParquetDecodingException: could not verify page integrity, CRC checksum verification failed "
    f"in file:{FILE}",
    f"org.apache.hadoop.fs.ChecksumException: Checksum error: file:{FILE} at 0 exp: 1 got: 2",
]
GONE = [
    f"[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file://{FILE}. File does not exist. It is "
    "possible the underlying files have been updated. SQLSTATE: KD001",
    f"[PATH_NOT_FOUND] Path does not exist: file:{FILE}. SQLSTATE: 42K03",
    f"java.io.FileNotFoundException: File file:{FILE} does not exist",
]


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_spark_cannot_read_is_corrupt_state(text: str) -> None:
    found = file_fault(text, TABLES)
    assert type(found) is CorruptState
    assert "'visits'" in found.message
    assert "totals" not in found.message
    assert found.where == FILE
    assert found.hint is not None
    assert found.hint.startswith("type: strandline verify visits;")


@pytest.mark.parametrize("text", GONE)
def test_a_file_that_spark_does_not_find_is_a_version_that_is_gone(text: str) -> None:
    found = file_fault(text, TABLES)
    assert type(found) is VersionGone
    assert (found.where, found.message) == (FILE, "a data file of 'visits' is gone")


def test_a_table_is_told_by_the_name_of_its_folder() -> None:
    """Spark escapes it once more."""
    for folder in ("page%20views", "page%2520views"):
        found = file_fault(
            f"[FAILED_READ_FILE.NO_HINT] Encountered error … file:/l/tables/{folder}/part.parquet.", TABLES
        )
        assert found is not None
        assert found.message == "a data file of 'page views' does not read back"


@pytest.mark.parametrize(
    "text",
    [
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:{FILE}.\nCaused by: java.io."
        "FileNotFoundException: /lake (Too many open files)",
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:{FILE}.\nCaused by: java.nio.channels."
        "ClosedByInterruptException",
        f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:{FILE}.\njava.lang.OutOfMemoryError",
        "Conversion Error: Could not convert string 'Out of buffer' to INT32",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column cannot be resolved",
        'Parser Error: syntax error at or near "parquet"',
    ],
)
def test_other_faults_say_nothing_of_a_file(text: str) -> None:
    assert file_fault(text, TABLES) is None


def test_a_row_that_fails_is_no_file_whatever_it_holds() -> None:
    spans = [SimpleNamespace(relation=SimpleNamespace(name=name)) for name in TABLES[:2]]
    epoch: Any = SimpleNamespace(
        stage=SimpleNamespace(table="totals"), record=SimpleNamespace(reason="few changes"), spans=spans
    )
    row = f"[CAST_INVALID_INPUT] The value '{FILE} is not a Parquet file' cannot be cast to \"INT\". Correct the value."
    assert isinstance(typed_fault(epoch, Exception(row)), RowFailed)
    found = typed_fault(epoch, Exception(BROKEN[0]))
    assert isinstance(found, CorruptState)
    assert "'visits'" in found.message
    assert typed_fault(epoch, Exception("the JVM has ended")) is None


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_what_duckdb_says_of_damaged_files_is_corrupt_state(
    lake: LakeLayout, db: duckdb.DuckDBPyConnection, codec: str
) -> None:
    """Its own texts. A flipped bit may also change a column's name, which is another error, or a value, which is none:
    the store checks files by their checksum, so this is the second guard."""
    file = _written(lake, codec)
    data, pick = file.read_bytes(), random.Random(1)
    damaged = [data[:-4] + b"abcd", data[:20], b"", data[: len(data) // 2]]
    for _ in range(60):
        bit = pick.randrange(len(data) * 8)
        damaged.append(data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :])
    said = []
    for number, content in enumerate(damaged):
        # DuckDB remembers what it has read under a name.
        other = file.with_name(f"part-{number}.parquet")
        other.write_bytes(content)
        said.append(_said(other, db))
    told = [text for text in said if text and "Binder Error" not in text]
    assert len(told) > 8
    for text in told:
        assert type(file_fault(text, TABLES)) is CorruptState, text


def test_what_duckdb_says_of_a_missing_file_is_a_version_that_is_gone(
    lake: LakeLayout, db: duckdb.DuckDBPyConnection
) -> None:
    file = _written(lake, "snappy")
    file.unlink()
    found = file_fault(_said(file, db), TABLES)
    assert type(found) is VersionGone
    assert (found.message, found.where) == ("a data file of 'visits' is gone", str(file))


def test_a_text_without_a_file_names_all_the_tables() -> None:
    found = file_fault("Out of buffer", TABLES)
    assert found is not None
    assert found.message == "a data file of 'visits' or 'page views' or 'totals' does not read back"
    assert found.where == "Out of buffer"


def _written(lake: LakeLayout, codec: str) -> Path:
    file = on_disk(lake.table("visits")) / "epoch-1" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    table = pa.table({"k": list(range(2000)), "v": [f"x{number * 7919 % 1000}" for number in range(2000)]})
    pq.write_table(table, file, compression=codec, write_page_checksum=True)
    return file


def _said(file: Path, db: duckdb.DuckDBPyConnection) -> str:
    try:
        db.execute(f"SELECT SUM(k), MAX(v) FROM read_parquet('{file}')").fetchall()
    except duckdb.Error as error:
        return str(error)
    return ""


def test_rows_that_duckdb_cannot_put_aside_are_a_disk_that_failed() -> None:
    """Files of this process may have a quarter of a megabyte, as on a disk that is full by then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with DuckDBEngine("60MB", 1) as duckdb_engine, duckdb_engine.connection() as connection:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
        try:
            with pytest.raises(duckdb.IOException) as found:
                connection.execute(
                    "CREATE TEMP TABLE t AS SELECT i, repeat('x', 100) || i AS s FROM range(600000) r(i)"
                )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for text in (str(found.value), f"duckdb.duckdb.IOException: {found.value}"):
        made = file_fault(text, TABLES)
        assert type(made) is DiskFailed
        assert made.message.startswith("'totals' could not put rows aside: Could not write")
        assert made.where is not None
        assert "strandline-kernel-" in made.where
