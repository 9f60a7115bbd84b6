"""How the rows of one table are stored: by its unique key, or by all visible columns with a count."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from strandline.state_store.replicas.codec.keys import KeyCodec
from strandline.state_store.replicas.codec.rows import RowCodec

if TYPE_CHECKING:
    import pyarrow as pa

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
