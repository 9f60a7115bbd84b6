"""Reads of DynamoDB as of one head. Two writes later what they need may be gone, and they say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.state_store.replicas.base.store import Snapshot
from strandline.state_store.replicas.dynamodb.items import moved_on, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.state_store.replicas.dynamodb.items import Head
    from strandline.state_store.replicas.dynamodb.requests import Requests


class DynamoSnapshot(Snapshot):
    """The rows of one head."""

    def __init__(self, requests: Requests, head: Head) -> None:
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
