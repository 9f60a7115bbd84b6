"""The commits that say what the columns of a table are: version 0, which creates it, and one that adds columns.

    version 0   a, b             no rows
    version 7   a, b             files without c
    version 8   a, b, c          the same files: c is NULL in their rows          mode `columns`, no change for readers
    version 9   a, b, c          one more file, with c

Delta has a column that a file lacks read as NULL. The digest of the same rows is another one with it, so they are read
once.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.state_store.commits import COLUMNS, Head
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import Files, enter, transaction
from strandline.state_store.delta.log import commit_file, commit_info, now_ms, write_commit
from strandline.state_store.delta.log_upkeep import flush_log
from strandline.state_store.delta.schema import widened
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.hashing.digest import Digest
    from strandline.state_store.paths import LakePath


def create_table(path: LakePath, schema_json: str, properties: Mapping[str, str], record: CommitRecord) -> bool:
    """Write version 0: the schema and no rows. Atomic; False when the table exists.

    It is not left to a Delta library: Spark takes seconds for it, and delta-rs requires every reader to know the
    VARIANT type as soon as deletion vectors are on.

    Args:
        schema_json: the schema in Delta's (and Spark's) JSON form.
        record: its `table` is the identity of the table.
    """
    vectors = properties.get("delta.enableDeletionVectors") == "true"
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 4}
    if vectors:
        features = ["appendOnly", "changeDataFeed", "deletionVectors", "invariants"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": features}
    metadata = {
        "id": record.table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now_ms(),
    }
    make_folder(commit_file(path, 0).parent)
    failpoint("after-table-folder")
    return write_commit(path, 0, [commit_info("CREATE TABLE", record), {"protocol": protocol}, {"metaData": metadata}])


def new_table_id() -> str:
    """The identity of a table that is made anew."""
    return str(uuid.uuid4())


def digest_with(path: LakePath, head: Head, schema_json: str) -> Digest:
    """The digest of the rows as they are read with all of these columns.

    Args:
        schema_json: all columns that the table is to have, as Delta's `schemaString`; those that it has are among them.

    Raises:
        CorruptState: the table has a column that it would lose, or have in another type; or its rows do not read.
        VersionGone: a data file is gone.
    """
    before = read_snapshot(path, head.version)
    return reader.digest_of_rows(path, replace(before, metadata=_wider(before, schema_json)))


def widen(path: LakePath, head: Head, schema_json: str, record: CommitRecord) -> Head:
    """Make the version after `head`, in which the table has further columns; its new head.

    Args:
        schema_json: as of `digest_with`.
        record: of the commit, with the digest that the rows have by then; its mode and counts are filled in here.

    Raises:
        CommitConflict: another writer made that version.
        CorruptState: as of `digest_with`, but for the rows.
        DiskFailed: as of `commit`.
    """
    before = read_snapshot(path, head.version)
    wider = _wider(before, schema_json)
    made = replace(record, mode=COLUMNS, inserted=0, deleted=0).identified(before.table_id)
    flush_log(path)
    failpoint("before-log-entry")
    enter(path, head, [commit_info("ADD COLUMNS", made), transaction(path, made), {"metaData": wider}], Files())
    return Head(head.version + 1, made)


def _wider(before: Snapshot, schema_json: str) -> dict[str, Any]:
    return {**before.metadata, "schemaString": widened(before.metadata["schemaString"], schema_json)}
