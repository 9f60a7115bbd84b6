"""What a log says of a table's rows: how many its live files have, and their digest. It must be what the record says.

    add   numRecords 1,000   deletion vector of 20   tag  <digest of the 980 rows>:980@<columns>
    add   numRecords   500                           tag  <digest of the 500 rows>:500@<columns>
    ───────────────────────────────────────────────────────────────────────────────────────────
    sums                                                  <digest>:1480                            = the record's digest

So a checkpoint that lost an `add`, or has an older deletion vector, is noticed when a table is opened, and no row read
of it. The tag stands for the rows of one file behind one deletion vector: it states their number, and the types of
the columns that were hashed. Where either is another one, as after another tool's DELETE or further columns, it says
nothing; nor does a file have one that an earlier version wrote. Then the numbers are compared.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.statistics import row_count
from strandline.state_store.errors import CorruptState
from strandline.state_store.hashing.digest import Digest
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.state_store.commits import CommitRecord

ROWS_TAG: Final = "strandline.rows"
"""The tag of an `add` action that holds the digest of the file's live rows, and which columns were hashed."""


@dataclass(frozen=True)
class RowSums:
    """What the log says of the rows of some files.

    Attributes:
        rows: live ones, of the files that say how many they have.
        unsaid: files that do not say it.
        files: all of them.
        tagged: {columns that were hashed: the digest of these files' rows, and the number of files}.
    """

    rows: int = 0
    unsaid: int = 0
    files: int = 0
    tagged: Mapping[str, tuple[Digest, int]] = field(default_factory=dict)

    def plus(self, body: Mapping[str, Any], times: int = 1) -> RowSums:
        """With one more file, by its `add` action; `times` −1: with one less."""
        live, tag = _said(body)
        tagged = self.tagged
        if tag is not None:
            digest, columns = tag
            before, files = tagged.get(columns, (Digest(), 0))
            tagged = {**tagged, columns: (before + digest if times > 0 else before - digest, files + times)}
        rows, unsaid = (self.rows, self.unsaid + times) if live is None else (self.rows + times * live, self.unsaid)
        return RowSums(rows, unsaid, self.files + times, tagged)

    def digest(self, schema_json: str) -> Digest | None:
        """The digest of the rows over the visible columns of a schema; None where some file does not say its own."""
        found, files = self.tagged.get(columns_hash(schema_json), (Digest(), 0))
        return found if files == self.files else None

    def difference(self, record: CommitRecord, schema_json: str) -> str:
        """What the log says of the rows, where it is not what the record says; empty: it is, or nobody can tell."""
        if not record.digest or not record.sealed:
            return ""
        wanted = Digest.parse(record.digest)
        if not self.unsaid and self.rows != wanted.count:
            return f"its files have {self.rows:,} rows by the log, and {wanted.count:,} were committed"
        found = self.digest(schema_json)
        if found is not None and found != wanted:
            return f"its files have rows of the digest {found} by the log, and {wanted} was committed"
        return ""

    def proof(self, schema_json: str) -> str:
        """How far the log says what rows there are: in words."""
        if self.digest(schema_json) is not None:
            return f"{self.rows:,} rows, by the digest of each file"
        if not self.unsaid:
            return f"{self.rows:,} rows by number only: not every file has a digest of its rows in the log"
        return "nothing: not every file says in the log how many rows it has"


def rows_tag(digest: Digest, schema_json: str) -> str:
    """The tag of a file with rows of a digest.

    Args:
        schema_json: the stored columns, as Delta's `schemaString`.
    """
    return f"{digest}@{columns_hash(schema_json)}"


def tagged_digest(body: Mapping[str, Any], schema_json: str) -> Digest | None:
    """The digest of a file's live rows over the visible columns of a schema; None where its action does not say it."""
    tag = _said(body)[1]
    return tag[0] if tag is not None and tag[1] == columns_hash(schema_json) else None


@lru_cache(maxsize=1 << 10)
def columns_hash(schema_json: str) -> str:
    """A mark of the columns that a digest is over, by their types: what they are called does not count."""
    fields = json.loads(schema_json)["fields"]
    types = [each["type"] for each in fields if each["name"] != STATE]
    return f"{zlib.crc32(json.dumps(types, sort_keys=True).encode()):08x}"


def _said(body: Mapping[str, Any]) -> tuple[int | None, tuple[Digest, str] | None]:
    """The live rows of a file, and its digest with the columns that it is over, each if its action says it."""
    try:
        gone = int((body.get("deletionVector") or {}).get("cardinality", 0))
        live = row_count(body) - gone
    except (CorruptState, TypeError, ValueError):
        return None, None
    try:
        digest, _, columns = str((body.get("tags") or {})[ROWS_TAG]).partition("@")
        found = Digest.parse(digest)
    except (KeyError, TypeError, CorruptState):
        return live, None
    return live, (found, columns) if found.count == live else None
