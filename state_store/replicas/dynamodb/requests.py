"""The requests to DynamoDB that a replica makes: in batches, with what was left undone asked for again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from strandline.state_store.errors import CommitConflict, StorageUnavailable
from strandline.state_store.replicas.dynamodb.errors import dynamodb_errors
from strandline.state_store.replicas.dynamodb.items import HEAD_KEY, Head, Item, head_item, head_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# DynamoDB's limits of a request.
_PUT_ITEMS: Final = 25
_GET_ITEMS: Final = 100
# Doubled each time: about a minute in all, in which a table that scales itself has more capacity.
_TRIES: Final = 10
_FIRST_PAUSE: Final = 0.05
_MARK: Final = "o"
"""The attribute of a head that no other put of a head has."""


class Requests:
    """The items of one replica in one table.

    Args:
        client: boto3's client for DynamoDB; it has the region, the keys and its own retries.
    """

    def __init__(self, client: Any, table: str, replica: str) -> None:
        self._client = client
        self.table = table
        self.replica = replica

    def head(self) -> Head:
        """The head as it is now."""
        return head_of(self._head_item())

    def put_head(self, head: Head, begun_before: int) -> None:
        """Put the head if the last write begun is still that one.

        Raises:
            CommitConflict: another process has begun a write.
        """
        item = head_item(self.replica, head) | {_MARK: {"S": uuid4().hex}}
        try:
            with dynamodb_errors(self.table):
                self._client.put_item(
                    TableName=self.table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(t) OR t = :before",
                    ExpressionAttributeValues={":before": {"N": str(begun_before)}},
                )
        except CommitConflict:
            # A client that got no answer puts once more by itself, and meets what it has put.
            if (self._head_item() or {}).get(_MARK) != item[_MARK]:
                raise

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Item]:
        """The items of keys, those that are there."""
        found: dict[bytes, Item] = {}
        unique = list(dict.fromkeys(keys))
        for start in range(0, len(unique), _GET_ITEMS):
            wanted = {"Keys": [self._key(key) for key in unique[start : start + _GET_ITEMS]], "ConsistentRead": True}
            requests = {self.table: wanted}
            for pause in _pauses():
                with dynamodb_errors(self.table):
                    answer = self._client.batch_get_item(RequestItems=requests)
                found |= {item["k"]["B"]: item for item in answer["Responses"].get(self.table, ())}
                requests = answer.get("UnprocessedKeys") or {}
                if not requests:
                    break
                time.sleep(pause)
            else:
                raise self._throttled()
        return found

    def put(self, items: Sequence[Item]) -> None:
        """Put items, in no order."""
        self._write([{"PutRequest": {"Item": item}} for item in items])

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove items."""
        self._write([{"DeleteRequest": {"Key": self._key(key)}} for key in keys])

    def query(self, low: bytes, high: bytes) -> Iterator[Item]:
        """The items from a key on, up to and with another, in order."""
        page: dict[str, Any] = {}
        while True:
            with dynamodb_errors(self.table):
                answer = self._client.query(
                    TableName=self.table,
                    KeyConditionExpression="p = :p AND k BETWEEN :low AND :high",
                    ExpressionAttributeValues={":p": {"S": self.replica}, ":low": {"B": low}, ":high": {"B": high}},
                    ConsistentRead=True,
                    **page,
                )
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _head_item(self) -> Item | None:
        with dynamodb_errors(self.table):
            found = self._client.get_item(TableName=self.table, Key=self._key(HEAD_KEY), ConsistentRead=True)
        item: Item | None = found.get("Item")
        return item

    def _write(self, writes: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(writes), _PUT_ITEMS):
            requests = {self.table: list(writes[start : start + _PUT_ITEMS])}
            for pause in _pauses():
                with dynamodb_errors(self.table):
                    answer = self._client.batch_write_item(RequestItems=requests)
                requests = answer.get("UnprocessedItems") or {}
                if not requests:
                    break
                time.sleep(pause)
            else:
                raise self._throttled()

    def _key(self, key: bytes) -> Item:
        return {"p": {"S": self.replica}, "k": {"B": key}}

    def _throttled(self) -> StorageUnavailable:
        return StorageUnavailable("DynamoDB does not keep up", where=f"table {self.table}", hint="raise its capacity")


def _pauses() -> Iterator[float]:
    for number in range(_TRIES):
        yield _FIRST_PAUSE * 2**number
