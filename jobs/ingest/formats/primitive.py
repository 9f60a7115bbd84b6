"""KAFKA: one column as Kafka's serializers write it: big-endian INT, BIGINT, DOUBLE; UTF-8 VARCHAR; raw BYTES."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.jobs.ingest.formats import columns
from strandline.jobs.model.errors import OptionRefused
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.model.definitions import Column

_NUMBERS = {
    BaseType.INT: struct.Struct(">i"),
    BaseType.BIGINT: struct.Struct(">q"),
    BaseType.DOUBLE: struct.Struct(">d"),
}
_BASES = (*_NUMBERS, BaseType.VARCHAR, BaseType.BYTES)


class PrimitiveFormat:
    """The format of one primitive column. The constructor raises OptionRefused for columns it cannot hold."""

    def __init__(self, wanted: tuple[Column, ...]) -> None:
        if len(wanted) != 1 or wanted[0].type.base not in _BASES:
            shown = ", ".join(f"{column.name} {column.type}" for column in wanted)
            raise OptionRefused(
                f"format KAFKA holds one column of INT, BIGINT, DOUBLE, VARCHAR or BYTES, not ({shown})",
                hint="use JSON, DELIMITED or AVRO",
            )
        self._column = wanted[0]
        self._number = _NUMBERS.get(self._column.type.base)

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """The one column. A null payload gives null; a broken one null and an entry in `errors`."""
        if self._column.type.base is BaseType.BYTES:
            return [pa.array(payloads, type=pa.binary())]
        if self._column.type.base is BaseType.VARCHAR:
            return [self._texts(payloads, errors)]
        return [self._numbers(payloads, errors)]

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of a wire value."""
        value = row[self._column.name]
        if value is None or isinstance(value, bytes):
            return value
        return value.encode() if self._number is None and isinstance(value, str) else self._pack(value)

    def _pack(self, value: object) -> bytes:
        assert self._number is not None, "the constructor let no other type through"
        return self._number.pack(value)

    def _texts(self, payloads: Sequence[bytes | None], errors: Errors) -> pa.Array:
        try:
            return pa.array(payloads, type=pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return columns.build(self._column, [self._text(p, row, errors) for row, p in enumerate(payloads)], errors)

    def _text(self, payload: bytes | None, row: int, errors: Errors) -> str | None:
        try:
            return None if payload is None else payload.decode()
        except UnicodeDecodeError:
            errors.setdefault(row, f"column '{self._column.name}': not UTF-8")
            return None

    def _numbers(self, payloads: Sequence[bytes | None], errors: Errors) -> pa.Array:
        assert self._number is not None, "texts and bytes are handled before"
        size = self._number.size
        if {len(payload) if payload is not None else -1 for payload in payloads} == {size}:
            joined = np.frombuffer(b"".join(payloads), dtype=self._number.format)  # type: ignore[arg-type]
            return pa.array(joined.astype(joined.dtype.newbyteorder("=")), type=self._column.type.arrow())
        values: list[object] = []
        for row, payload in enumerate(payloads):
            if payload is not None and len(payload) != size:
                sql_type = self._column.type
                errors.setdefault(row, f"column '{self._column.name}': {len(payload)} bytes, a {sql_type} has {size}")
                payload = None
            values.append(None if payload is None else self._number.unpack(payload)[0])
        return columns.build(self._column, values, errors)
