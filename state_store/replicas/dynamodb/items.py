"""The form of rows in DynamoDB: each item has the value of its last write, and the one before.

    item   p: the replica | k: key | n, v: number and value of the last write | m, w: those before; no value: no row
    head   p: the replica | k: `00` | n: last whole write | t: last write begun | a: writes that broke off | v: state
           o: the mark of this put of the head alone

A write puts all its items under a new number, then one put of the head makes that number count. So a write of any
size is atomic, though DynamoDB's own transactions end at 100 items: whoever reads goes by the head, and takes an item's
value before where the last one does not count. A write that was killed is on the list of those that never count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

Item = dict[str, dict[str, Any]]

HEAD_KEY: Final = b"\x00"


@dataclass(frozen=True)
class Head:
    """Which writes count.

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

    def next(self) -> Head:
        """With one more write begun; one that was begun before and is not whole never will be."""
        left = {self.begun} if self.begun != self.number else set()
        return replace(self, begun=self.begun + 1, broken=self.broken | left)

    def whole(self, state: bytes) -> Head:
        """With the write that was begun."""
        return replace(self, number=self.begun, state=state)


def head_item(replica: str, head: Head) -> Item:
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


def head_of(item: Mapping[str, Any] | None) -> Head:
    """The head in an item; the first one without it."""
    if item is None:
        return Head()
    broken = frozenset(int(number) for number in item.get("a", {}).get("NS", ()))
    return Head(int(item["n"]["N"]), int(item["t"]["N"]), broken, item.get("v", {}).get("B"))


def item_of(replica: str, key: bytes, value: bytes | None, old: Mapping[str, Any] | None, head: Head) -> Item:
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


def value_of(item: Mapping[str, Any] | None, head: Head) -> bytes | None:
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
