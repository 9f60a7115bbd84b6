"""Order-preserving bytes of single values: the same bytes as those that `ordered` makes of columns.

A point read has one key, and Arrow takes some 300 µs to make columns of it; this takes two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import InvalidOperation
from typing import Any, Final

import pyarrow as pa

from strandline.state_store.errors import CorruptState, KeyRefused
from strandline.state_store.replicas.codec.numbers import is_array, is_bytes, is_text, to_integer, unscaled, width_of
from strandline.state_store.replicas.codec.ordered import DECIMAL_BYTES, ESCAPED, NULL, PRESENT, TERMINATOR

Encoder = Callable[[Any], bytes]

_REFUSED: Final = (TypeError, ValueError, AttributeError, OverflowError, InvalidOperation, struct.error, KeyError)


def encoder(arrow_type: pa.DataType) -> Encoder:
    """The function that makes the bytes of one value, or of None. It raises KeyRefused for a value of another type.

    Raises:
        CorruptState: our tables have no such type.
    """
    body, width = _encoder_of(arrow_type)
    null = NULL + bytes(width)

    def encode(value: Any) -> bytes:
        if value is None:
            return null
        try:
            return PRESENT + body(value)
        except _REFUSED as error:
            raise KeyRefused(f"{value!r} is no value of type {arrow_type}") from error

    return encode


def _encoder_of(found: pa.DataType) -> tuple[Encoder, int]:
    """The encoder of a value that is not NULL, and the width if it is fixed, else 0."""
    width = width_of(found)
    if width is not None:
        return _offset_integer(found, width), width
    if pa.types.is_floating(found):
        return _float_encoder(found), found.bit_width // 8
    if pa.types.is_decimal(found):
        top = 1 << (8 * DECIMAL_BYTES - 1)
        return lambda value: (unscaled(value, found.scale) + top).to_bytes(DECIMAL_BYTES, "big"), DECIMAL_BYTES
    if is_text(found):
        return lambda value: _escaped(str.encode(value)), 0
    if is_bytes(found):
        return lambda value: _escaped(bytes(memoryview(value))), 0
    if pa.types.is_struct(found):
        fields = [(field.name, encoder(field.type)) for field in found]
        return lambda value: b"".join(encode(value[name]) for name, encode in fields), 0
    if pa.types.is_map(found):
        key, item = encoder(found.key_type), encoder(found.item_type)
        return lambda value: b"".join(sorted(PRESENT + key(k) + item(v) for k, v in _entries(value))) + NULL, 0
    if is_array(found):
        element = encoder(found.value_type)
        return lambda value: b"".join(PRESENT + element(each) for each in value) + NULL, 0
    raise CorruptState(f"a column of type {found} has no place in a replica")


def _offset_integer(found: pa.DataType, width: int) -> Encoder:
    top = 1 << (8 * width - 1)
    number = to_integer(found)
    return lambda value: (number(value) + top).to_bytes(width, "big")


def _float_encoder(found: pa.DataType) -> Encoder:
    width = found.bit_width // 8
    form, top = {4: ">f", 8: ">d"}[width], 1 << (8 * width - 1)

    def encode(value: Any) -> bytes:
        if isinstance(value, bool):
            raise TypeError
        plain = float("nan") if value != value else value + 0.0
        bits = int.from_bytes(struct.pack(form, plain), "big")
        turned: int = bits ^ (2 * top - 1) if bits & top else bits | top
        return turned.to_bytes(width, "big")

    return encode


def _escaped(data: bytes) -> bytes:
    return data.replace(NULL, ESCAPED) + TERMINATOR


def _entries(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value
