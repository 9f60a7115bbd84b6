"""State of a replica: stored beside its rows, and changed in the same write as they are.

| phase | the rows are | legal before |
| --- | --- | --- |
| REGISTERED | about to be removed | any: whatever is wrong with a replica, it can begin anew |
| RESTORING | some of those of one version | REGISTERED, RESTORING |
| VERIFIED | those of a version: the digest was compared | RESTORING, VERIFIED, LIVE |
| LIVE | those of the table's head, not long ago | VERIFIED, LIVE |

LIVE is never stored: how fresh the rows are is not known to a process that has just opened them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest
from strandline.state_store.errors import ReplicaCorrupt
from strandline.state_store.replicas.key_bytes import KeyCodec
from strandline.state_store.replicas.row_bytes import RowCodec

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


# Layout of the rows of one table: by its unique key, or by all visible columns with a count.

CODEC_FORMAT = 1
"""Of the bytes of keys and rows. A replica of another one is restored anew."""


class Layout:
    """The codecs of a table's visible rows.

    Args:
        schema: the visible columns.
        key: the columns of its unique key, which may be none (a single row); None: without a unique key.

    Raises:
        CorruptState: a column has a type that our tables do not have.
    """

    def __init__(self, schema: pa.Schema, key: tuple[str, ...] | None) -> None:
        self.schema = schema
        self.unique = key is not None
        self.key = tuple(schema.names) if key is None else key
        self.rows = RowCodec(schema)
        self.keys = KeyCodec(schema, self.key)

    @property
    def fingerprint(self) -> str:
        """The same for replicas whose rows have the same bytes."""
        columns = [(field.name, str(field.type)) for field in self.schema]
        text = json.dumps([CODEC_FORMAT, columns, self.unique, self.key])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


NO_ROWS: Final = Digest()
_FORMAT: Final = 1


class Phase(StrEnum):
    """How far a replica has come."""

    REGISTERED = "registered"
    RESTORING = "restoring"
    VERIFIED = "verified"
    LIVE = "live"


PREDECESSORS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.REGISTERED: frozenset(Phase),
    Phase.RESTORING: frozenset({Phase.REGISTERED, Phase.RESTORING}),
    Phase.VERIFIED: frozenset({Phase.RESTORING, Phase.VERIFIED, Phase.LIVE}),
    Phase.LIVE: frozenset({Phase.VERIFIED, Phase.LIVE}),
}
"""{phase: the phases that it may follow}."""


@dataclass(frozen=True)
class ReplicaState:
    """One state of a replica.

    Attributes:
        layout: fingerprint of the columns and the key that the rows are stored by.
        at: the table's commit that the rows are of, or are being restored from; None while REGISTERED.
        digest: of the rows once VERIFIED; before, nothing.
        file: while RESTORING: the data file that is being loaded; those that sort before it are done.
        file_rows: the rows of it that are loaded.
        rows: rows loaded of all files.
    """

    layout: str
    phase: Phase = Phase.REGISTERED
    at: TableVersion | None = None
    digest: Digest = NO_ROWS
    file: str = ""
    file_rows: int = 0
    rows: int = 0

    def entering(self, phase: Phase, **changes: Any) -> ReplicaState:
        """The next state.

        Raises:
            ValueError: the phase may not follow this one; a fault of the program.
        """
        if self.phase not in PREDECESSORS[phase]:
            raise ValueError(f"a replica that is {self.phase} cannot become {phase}")
        return replace(self, phase=phase, **changes)

    def to_bytes(self) -> bytes:
        """The stored form, with its checksum."""
        stored = self.entering(Phase.VERIFIED) if self.phase is Phase.LIVE else self
        body = json.dumps({"format": _FORMAT, **asdict(stored)}, sort_keys=True).encode()
        return f"{zlib.crc32(body):08x}".encode() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> ReplicaState:
        """The state out of its stored form.

        Raises:
            ReplicaCorrupt: it is broken, or of a format that is not read here.
        """
        try:
            body = json.loads(data[8:])
            if int(data[:8], 16) != zlib.crc32(data[8:]) or body.pop("format") != _FORMAT:
                raise ValueError
            at = body.pop("at")
            digest, phase = Digest(**body.pop("digest")), Phase(body.pop("phase"))
            return cls(at=TableVersion(**at) if at else None, digest=digest, phase=phase, **body)
        except (ValueError, KeyError, TypeError) as error:
            raise ReplicaCorrupt("the state of a replica does not read back") from error
