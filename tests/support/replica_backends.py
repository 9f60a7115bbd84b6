"""The backends of replicas, opened by name: every test of one is a test of all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.dynamodb.local import client_of
from strandline.state_store.replicas.store import Store

TABLE = "replicas"
BACKENDS = ("memory", "rocksdb", "lmdb", "dynamodb")
LASTING = ("rocksdb", "lmdb", "dynamodb")
"""Those that outlive their process."""


@dataclass(frozen=True)
class Backend:
    """A backend, and where its DynamoDB is if it is that one; it can be sent to another process."""

    name: str
    url: str = ""

    def open(self, path: Path) -> Store:
        """The store of that path: a folder, or a name in DynamoDB."""
        if self.name == "memory":
            from strandline.state_store.replicas.store import MemoryStore

            return MemoryStore()
        if self.name == "rocksdb":
            from strandline.state_store.replicas.rocksdb import RocksStore

            return RocksStore(path, cache_bytes=8 << 20)
        if self.name == "lmdb":
            from strandline.state_store.replicas.lmdb import LmdbStore

            return LmdbStore(path, map_bytes=1 << 30)
        from strandline.state_store.replicas.dynamodb import DynamoStore, make_table

        client = client_of(self.url)
        make_table(client, TABLE)
        return DynamoStore(client, TABLE, str(path))

    def take_back(self, backup: Path, path: Path) -> Store:
        """The store of that path, which is not there yet, with the rows of a backup."""
        if self.name == "rocksdb":
            from strandline.state_store.replicas.rocksdb import take_back as copy_rocksdb

            copy_rocksdb(backup, path)
            return self.open(path)
        if self.name == "lmdb":
            from strandline.state_store.replicas.lmdb import take_back as copy_lmdb

            copy_lmdb(backup, path)
            return self.open(path)
        from strandline.state_store.replicas.dynamodb import take_back as load_dynamodb
        from strandline.state_store.replicas.store import take_back as load_memory

        store = self.open(path)
        load = load_memory if self.name == "memory" else load_dynamodb
        load(backup, store, b"unfinished")
        return store
