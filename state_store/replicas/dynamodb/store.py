"""A store in a table of DynamoDB, which may hold many replicas. One process writes a replica; any may read."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.errors import StorageUnavailable, StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.replicas.base.store import Store
from strandline.state_store.replicas.codec.keys import ROWS, ROWS_END
from strandline.state_store.replicas.dynamodb.backup import copy_rows
from strandline.state_store.replicas.dynamodb.errors import dynamodb_errors
from strandline.state_store.replicas.dynamodb.items import item_of
from strandline.state_store.replicas.dynamodb.requests import Requests
from strandline.state_store.replicas.dynamodb.snapshot import DynamoSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Snapshot, Write

# A read finds its head gone when two writes end while it runs. A write takes at least two requests, as a read does:
# only a reader that is held up, by a pause of its process, is overtaken, and not five times on end.
LOOKS: Final = 5


def make_table(client: Any, table: str) -> None:
    """Make the table unless it is there, and wait until it can be used.

    Raises:
        StorageDenied: the rights are missing.
        StorageUnavailable: DynamoDB does not answer.
    """
    with dynamodb_errors(table):
        try:
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "k", "KeyType": "RANGE"}],
                AttributeDefinitions=[
                    {"AttributeName": "p", "AttributeType": "S"},
                    {"AttributeName": "k", "AttributeType": "B"},
                ],
                BillingMode="PAY_PER_REQUEST",
            )
        except client.exceptions.ResourceInUseException:
            return
        client.get_waiter("table_exists").wait(TableName=table)


class DynamoStore(Store):
    """The store of one replica in a table that is there.

    Args:
        client: boto3's client for DynamoDB.
        replica: the replica's name in the table.
    """

    def __init__(self, client: Any, table: str, replica: str) -> None:
        self._requests = Requests(client, table, replica)
        # What is at the head belongs to this process as long as it writes alone: `put_head` notices when it does not.
        self._head = self._requests.head()
        # Items of the last write that hold no row any more: a reader of the write before may still ask for them.
        self._gone: list[bytes] = []

    def write(self, write: Write) -> None:
        before, begun = self._head, self._head.next()
        self._requests.put_head(begun, before.begun)
        self._head = begun
        old = self._requests.get(write.keys)
        rows = zip(write.keys, write.values, strict=True)
        items = [item_of(self._requests.replica, key, value, old.get(key), begun) for key, value in rows]
        half = len(items) // 2
        self._requests.put(items[:half])
        failpoint("inside-dynamodb-write")
        self._requests.put(items[half:])
        whole = begun.whole(write.state)
        self._requests.put_head(whole, begun.begun)
        self._head = whole
        self._purge(write)

    def clear(self, state: bytes) -> None:
        begun = self._head.next()
        self._requests.put_head(begun.whole(state), self._head.begun)
        self._head, self._gone = begun.whole(state), []
        self._requests.delete([item["k"]["B"] for item in self._requests.query(ROWS, ROWS_END)])

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield DynamoSnapshot(self._requests, self._requests.head())

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        state, (value,) = self.points([key])
        return state, value

    def points(self, keys: Sequence[bytes]) -> tuple[bytes | None, list[bytes | None]]:
        for _ in range(LOOKS - 1):
            head = self._requests.head()
            try:
                return head.state, DynamoSnapshot(self._requests, head).multi_get(keys)
            except StorageUnavailable:
                if self._requests.head().number == head.number:
                    raise
        return super().points(keys)

    def copy_to(self, folder: Path) -> None:
        with self.snapshot() as now:
            copy_rows(now, folder)

    def _purge(self, write: Write) -> None:
        """Remove the items of rows that went with the write before. After a kill or an error they stay: they are no
        rows, and the write is done whatever becomes of them."""
        touched = set(write.keys)
        with suppress(StoreError):
            self._requests.delete([key for key in self._gone if key not in touched])
        self._gone = [key for key, value in zip(write.keys, write.values, strict=True) if value is None]

    def close(self) -> None:
        """Nothing: the client is its maker's."""
