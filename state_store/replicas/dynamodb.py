"""Replicas in DynamoDB: shared by many readers, for as long as one process writes."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from strandline.state_store.errors import CommitConflict, ObjectMissing, StorageDenied, StorageUnavailable, StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.replicas.row_bytes import ROWS, ROWS_END
from strandline.state_store.replicas.store import Store, StoreSnapshot, check_backup, dump, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.store import Write


# DynamoDB's errors as ours.

_DENIED: Final = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "ValidationException",
    "ItemCollectionSizeLimitExceededException",
)


@contextmanager
def dynamodb_errors(table: str) -> Iterator[None]:
    """Turn an error of DynamoDB inside the block into one of ours."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        about, where = f"DynamoDB: {code}: {error.response['Error'].get('Message', '')}", f"table {table}"
        if code == "ConditionalCheckFailedException":
            raise CommitConflict(
                "another process writes this replica", where=where, hint="one process writes a replica; stop the other"
            ) from error
        if code == "ResourceNotFoundException":
            raise ObjectMissing(about, where=where, hint="make the table first") from error
        if code in _DENIED:
            raise StorageDenied(about, where=where, hint="correct the keys, the rights or the region") from error
        raise StorageUnavailable(about, where=where, hint="try again") from error
    except BotoCoreError as error:
        raise StorageUnavailable(f"DynamoDB: {error}", where=f"table {table}", hint="try again") from error


# The form of rows in DynamoDB: each item has the value of its last write, and the one before.
#
#     item   p: the replica | k: key | n, v: number and value of the last write | m, w: those before; no value: no row
#     head   p: the replica | k: `00` | n: last whole write | t: last write begun | a: writes that broke off | v: state
#            o: the mark of this put of the head alone
#
# A write puts all its items under a new number, then one put of the head makes that number count. So a write of any
# size is atomic, though DynamoDB's own transactions end at 100 items: whoever reads goes by the head, and takes an
# item's value before where the last one does not count. A write that was killed is on the list of those that never
# count.

Item = dict[str, dict[str, Any]]

HEAD_KEY: Final = b"\x00"


@dataclass(frozen=True)
class ReplicaHead:
    """Head of a replica: the writes that count.

    Attributes:
        number: the last whole write; 0 before the first.
        begun: the last write that was begun.
        broken: writes that were begun and never became whole.
    """

    number: int = 0
    begun: int = 0
    broken: frozenset[int] = frozenset()
    state: bytes | None = None

    def counts(self, number: int) -> bool:
        return number <= self.number and number not in self.broken

    def next(self) -> ReplicaHead:
        """The head with one more write begun; one that was begun before and is not whole never will be."""
        left = {self.begun} if self.begun != self.number else set()
        return replace(self, begun=self.begun + 1, broken=self.broken | left)

    def whole(self, state: bytes) -> ReplicaHead:
        """The head with the begun write counting."""
        return replace(self, number=self.begun, state=state)


def head_item(replica: str, head: ReplicaHead) -> Item:
    """The item of a head."""
    item: Item = {
        "p": {"S": replica},
        "k": {"B": HEAD_KEY},
        "n": {"N": str(head.number)},
        "t": {"N": str(head.begun)},
    }
    if head.broken:
        item["a"] = {"NS": [str(number) for number in sorted(head.broken)]}
    if head.state is not None:
        item["v"] = {"B": head.state}
    return item


def head_of(item: Mapping[str, Any] | None) -> ReplicaHead:
    """The head in an item; the first one without it."""
    if item is None:
        return ReplicaHead()
    broken = frozenset(int(number) for number in item.get("a", {}).get("NS", ()))
    return ReplicaHead(int(item["n"]["N"]), int(item["t"]["N"]), broken, item.get("v", {}).get("B"))


def item_of(replica: str, key: bytes, value: bytes | None, old: Mapping[str, Any] | None, head: ReplicaHead) -> Item:
    """The item that a write puts: the new value, and of the old item the value that counts."""
    item: Item = {"p": {"S": replica}, "k": {"B": key}, "n": {"N": str(head.begun)}}
    if value is not None:
        item["v"] = {"B": value}
    if old is not None:
        number, kept = ("n", "v") if head.counts(int(old["n"]["N"])) else ("m", "w")
        if number in old:
            item["m"] = old[number]
            if kept in old:
                item["w"] = old[kept]
    return item


def value_of(item: Mapping[str, Any] | None, head: ReplicaHead) -> bytes | None:
    """The value that counts.

    Raises:
        StorageUnavailable: two writes came since the head was read, so the value is gone.
    """
    if item is None:
        return None
    if head.counts(int(item["n"]["N"])):
        found: bytes | None = item.get("v", {}).get("B")
        return found
    if "m" in item and not head.counts(int(item["m"]["N"])):
        raise moved_on()
    before: bytes | None = item.get("w", {}).get("B")
    return before


def moved_on() -> StorageUnavailable:
    """The error of a read that took longer than the writes beside it."""
    return StorageUnavailable("the replica went on while it was read", hint="read again")


# The requests to DynamoDB that a replica makes: in batches, with what was left undone asked for again.

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

    def head(self) -> ReplicaHead:
        """The head as it is now."""
        return head_of(self._head_item())

    def put_head(self, head: ReplicaHead, begun_before: int) -> None:
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


# Reads as of one head. Two writes later what they need may be gone: they raise.


class DynamoSnapshot(StoreSnapshot):
    """The rows of one head."""

    def __init__(self, requests: Requests, head: ReplicaHead) -> None:
        self._requests = requests
        self._head = head

    def state(self) -> bytes | None:
        return self._head.state

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._requests.get(keys)
        if not all(key in found for key in keys):
            self._check()
        return [value_of(found.get(key), self._head) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        if low >= high:
            return
        for item in self._requests.query(low, high):
            key, value = item["k"]["B"], value_of(item, self._head)
            if value is not None and key < high:
                yield key, value
        self._check()

    def _check(self) -> None:
        """What is not there may have been removed since: that of one write later is kept.

        Raises:
            StorageUnavailable: two writes came since the head was read.
        """
        if self._requests.head().number > self._head.number + 1:
            raise moved_on()


# Backups of a store in DynamoDB: a dump.


def copy_rows(snapshot: StoreSnapshot, folder: Path) -> None:
    """Write the rows and the state to files in the folder."""
    dump(snapshot, folder)


def take_back(backup: Path, store: Store, unfinished: bytes) -> None:
    """Put the rows of a backup into a store; errors as of `check_backup` and `load`."""
    check_backup(backup)
    load(backup, store, unfinished)


# A store in a table of DynamoDB, which may hold many replicas. One process writes a replica; any may read.

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
    def snapshot(self) -> Iterator[StoreSnapshot]:
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
        """Do nothing: the client is its maker's."""
