"""Delta tables and their changelogs: read at a version, changed by one commit per epoch, verified by a digest.

It knows nothing of SQL views or Dagster. Importing it starts neither a JVM nor a Delta reader.
"""

from state_store.commits import CommitRecord, Head
from state_store.digest import Digest, digest_of_table
from state_store.errors import StoreError, StrandlineError
from state_store.layout import Lake
from state_store.lock import writer_lock
from state_store.table import Table
from state_store.tablespec import TableSpec

__all__ = [
    "CommitRecord",
    "Digest",
    "Head",
    "Lake",
    "StoreError",
    "StrandlineError",
    "Table",
    "TableSpec",
    "digest_of_table",
    "writer_lock",
]
