"""What an entry states beside its record: its own version, and marks of the table after it.

    {"commitInfo": {…, "strandline": {"version": 61, "files": "5f…", "said": "0c…", "table": "9a6b3c1d"}}}

    version   an entry under the name of another version is a copy
    files     sum over the live files: which they are, and the deletion vector of each
    said      sum over the live files: their statistics and tags, by which readers leave files out
    table     its identity, columns and properties

A record's count and digest tell that rows are missing, by what the log says of each file. They do not tell that a
checkpoint has the vector of another file, another's columns, or bounds that leave a file out. It stands outside of the
record, where versions of Strandline that do not know it pass over it. After a commit of another tool nobody knows
until our next one.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import xxhash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEMBER: Final = "strandline"
"""The member of `commitInfo`; Delta lets writers have their own there."""

_MODULUS: Final = 1 << 64
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


@dataclass(frozen=True)
class Marks:
    """Sums over files, in any order, modulo 2^64: of which files they are, and of what the log says of each."""

    files: int = 0
    said: int = 0

    def plus(self, body: Mapping[str, Any], times: int = 1) -> Marks:
        """With one more file, by its `add` action; with `times` −1, without it."""
        return Marks(
            (self.files + times * _file_mark(body)) % _MODULUS, (self.said + times * _said_mark(body)) % _MODULUS
        )


@dataclass(frozen=True)
class Statement:
    """What an entry states of the table after it."""

    version: int
    marks: Marks
    table: str

    def as_json(self) -> dict[str, Any]:
        files, said = f"{self.marks.files:016x}", f"{self.marks.said:016x}"
        return {"version": self.version, "files": files, "said": said, "table": self.table}

    def after(self, actions: Sequence[Mapping[str, Any]]) -> Statement:
        """The statement of the next version, of a commit that only adds files."""
        marks = self.marks
        for action in actions:
            if "add" in action:
                marks = marks.plus(action["add"])
        return Statement(self.version + 1, marks, self.table)


def stated(info: Mapping[str, Any]) -> Statement | None:
    """The statement in a `commitInfo`; None where there is none.

    Raises:
        KeyError, TypeError, ValueError: it does not read back.
    """
    found = info.get(MEMBER)
    if found is None:
        return None
    marks = Marks(int(found["files"], 16), int(found["said"], 16))
    return Statement(int(found["version"]), marks, str(found["table"]))


def table_mark(metadata: Mapping[str, Any]) -> str:
    """The mark of a table by its `metaData` action: identity, columns, properties, however they are written."""
    said = {
        "id": metadata.get("id"),
        "columns": json.loads(metadata.get("schemaString") or "null"),
        "properties": metadata.get("configuration") or {},
        "partitions": metadata.get("partitionColumns") or [],
    }
    return f"{zlib.crc32(json.dumps(said, sort_keys=True).encode()):08x}"


# A table may have ten thousand files, and opening it takes 3 µs of each for these.


def _file_mark(body: Mapping[str, Any]) -> int:
    vector = body.get("deletionVector")
    place = [str(vector.get(name) or 0) for name in _VECTOR] if vector else ()
    return _mark(body["path"], *place)


def _said_mark(body: Mapping[str, Any]) -> int:
    tags = sorted((body.get("tags") or {}).items())
    return _mark(body["path"], body.get("stats") or "", *chain.from_iterable(tags))


def _mark(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode())
