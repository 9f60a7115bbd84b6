"""Version 0 of a table: the commit that creates it, with its schema and no rows."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from state_store.delta.log import commit_file, commit_info, now_ms, write_commit
from state_store.failpoints import failpoint
from state_store.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state_store.commits import CommitRecord
    from state_store.paths import LakePath


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
