"""Checks of a table's files and rows: what the head names is there, as it was written, and adds up to the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.operate.verify.findings import counted, failed, passed, skipped
from strandline.state_store.delta import log
from strandline.state_store.delta.data_files import checksum, stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_rows, vector_file
from strandline.state_store.delta.statistics import row_count
from strandline.state_store.digest import Digest
from strandline.state_store.errors import StoreError
from strandline.state_store.paths import file_size, within
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.subjects import Opened
    from strandline.state_store.paths import LakePath


def check_files(table: Opened) -> Outcome:
    """Each data file has the size and the CRC-32 that its `add` action says.

    Raises:
        CorruptState: the log names a file outside the table.
    """
    files = {log.inside(table.path, name): body for name, body in table.snapshot.files.items()}
    faults = {file: fault for file, body in files.items() if (fault := _fault(file, body))}
    if faults:
        file, fault = next(iter(faults.items()))
        what = f"{len(faults)} of {counted(len(files), 'file')} " + ("is" if len(faults) == 1 else "are")
        return failed(sentence("{} not as written: '{}' {}", what, within(file, table.path), fault), file)
    untold = sum(stated_checksum(body) is None for body in files.values())
    if untold:
        return skipped(
            f"{untold} of {counted(len(files), 'file')} have no checksum in the log, as another tool or an earlier "
            "version wrote them; all are there, of the right size"
        )
    size = sum(int(body["size"]) for body in files.values())
    return passed(f"{counted(len(files), 'file')}, {counted(size, 'byte')}")


def check_vectors(table: Opened) -> Outcome:
    """Each deletion vector has its checksum, its size and its cardinality, and names rows that its file has."""
    vectors = [(name, body) for name, body in table.snapshot.files.items() if body.get("deletionVector")]
    for name, body in vectors:
        descriptor = body["deletionVector"]
        try:
            gone = deleted_rows(table.path, descriptor)
        except StoreError as error:
            return failed(sentence("{} (of '{}')", error.message, Name(name)), _place(table.path, descriptor))
        if gone and "stats" in body and gone.max() >= row_count(body):
            return failed(
                sentence("the vector of '{}' names a row that it does not have", Name(name)),
                _place(table.path, descriptor),
            )
    deleted = sum(int(body["deletionVector"]["cardinality"]) for _, body in vectors)
    return passed(f"{counted(len(vectors), 'vector')}, {counted(deleted, 'deleted row')}")


def _fault(file: LakePath, body: Mapping[str, Any]) -> str:
    """What is wrong with a data file; empty when nothing is."""
    try:
        size = file_size(file)
        if size != int(body["size"]):
            return f"has {size} bytes instead of {body['size']}"
        wanted = stated_checksum(body)
        return "fails its checksum" if wanted is not None and checksum(file) != wanted else ""
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _place(path: LakePath, descriptor: Mapping[str, Any]) -> LakePath:
    try:
        return vector_file(path, descriptor) or path
    except (ValueError, KeyError, TypeError):
        return path


# The checks of a table's rows: their digest and their number, counted from the files, are what the record says.


def check_digest(table: Opened, rows: Digest) -> Outcome:
    """The rows at the head have the digest of the record."""
    said = Digest.parse(table.record.digest)
    if (said.first, said.second) != (rows.first, rows.second):
        return failed(f"the rows of version {table.version} have the digest {rows}, the record says {said}")
    return passed(str(rows))


def check_row_count(table: Opened, rows: Digest) -> Outcome:
    """There are as many rows at the head as the record says."""
    if rows.count != table.record.rows:
        said = table.record.rows
        return failed(f"version {table.version} has {counted(rows.count, 'row')}, the record says {said}")
    return passed(counted(rows.count, "row"))
