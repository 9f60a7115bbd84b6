"""A location: one name in a storage, as `pathlib.Path` is one name on a disk.

It may name an object, a folder, or nothing yet. Two locations are equal when storage and key are. What both can do has
the same name in both, so that code over files is code over objects: see `state_store.paths`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.state_store.keys import checked_key, joined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.state_store.storage_verbs import Entry, Storage


@dataclass(frozen=True, slots=True)
class Location:
    """A storage and a key in it; the empty key is its root. The methods raise what those of `Storage` raise.

    Raises:
        KeyRefused: the key leaves the root, or is not the same on every kind of storage.
    """

    storage: Storage
    key: str = ""

    def __post_init__(self) -> None:
        if self.key:
            checked_key(self.key)

    def __truediv__(self, name: str) -> Location:
        return Location(self.storage, joined(self.key, name))

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the key; empty for the root."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        head, dot, _ = self.name.rpartition(".")
        return head if dot and head else self.name

    @property
    def parent(self) -> Location:
        """The folder that it is in; the root is in itself."""
        return Location(self.storage, self.key.rpartition("/")[0])

    @property
    def url(self) -> str:
        """The location as other readers take it: an absolute path, or a URL such as `s3://bucket/lake/tables/t`."""
        return self.storage.url(self.key)

    @property
    def local_path(self) -> Path | None:
        """The path on this machine's disk, if that is where it lies."""
        return self.storage.local_path(self.key)

    def with_name(self, name: str) -> Location:
        """The location of that name in the same folder."""
        return self.parent / name

    def read_bytes(self) -> bytes:
        """The whole content."""
        return self.storage.get(self.key)

    def read_range(self, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer where the object ends sooner."""
        return self.storage.get_range(self.key, start, length)

    def read_with_etag(self) -> tuple[bytes, str]:
        """The whole content, and its etag for `update`."""
        return self.storage.get_with_etag(self.key)

    def size(self) -> int:
        """The size in bytes."""
        return self.storage.size(self.key)

    def exists(self) -> bool:
        """True if an object is there; a folder is none."""
        return self.storage.exists(self.key)

    def create(self, data: bytes) -> bool:
        """Put a new object; False, and nothing written, if the name is taken."""
        return self.storage.create(self.key, data)

    def replace(self, data: bytes) -> None:
        """Put the object, in place of the one that is there, if any."""
        self.storage.replace(self.key, data)

    def update(self, data: bytes, expected_etag: str | None) -> str | None:
        """Put the object if the one there has the expected etag (None: if none is there); the new etag, or None."""
        return self.storage.update(self.key, data, expected_etag)

    def delete(self) -> None:
        """Remove the object; nothing happens when there is none."""
        self.storage.delete(self.key)

    def list(self, after: str | None = None, *, recursive: bool = False) -> Iterator[Location]:
        """The objects in this folder, in order; with `after` only those past that name, relative to the folder."""
        past = None if after is None else joined(self.key, after)
        return (Location(self.storage, key) for key in self.storage.list(self.key, past, recursive=recursive))

    def entries(self) -> Iterator[tuple[Location, Entry]]:
        """The objects in this folder and all in it, in order, with their sizes and times."""
        return ((Location(self.storage, each.key), each) for each in self.storage.entries(self.key))

    def folders(self) -> Iterator[Location]:
        """The folders in this folder, in order."""
        return (Location(self.storage, key) for key in self.storage.folders(self.key))

    def make_folder(self) -> None:
        """Make this folder and those above it, where folders exist."""
        self.storage.make_folder(self.key)
