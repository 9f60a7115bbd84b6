"""Single values out of their order-preserving bytes, as Arrow's `to_pylist` gives them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.codec.numbers import from_integer, is_array, is_bytes, is_text, scaled, width_of
from strandline.state_store.replicas.codec.ordered import DECIMAL_BYTES, ESCAPED, NULL

Decoder = Callable[[bytes, int], tuple[Any, int]]
"""Takes bytes and a position; gives the value there and the position behind it."""


def decoder(arrow_type: pa.DataType) -> Decoder:
    """The function that reads one value back, as Arrow's `to_pylist` gives it.

    Raises:
        CorruptState: our tables have no such type.
    """
    body, width = _decoder_of(arrow_type)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if data[at] == 0:
            return None, at + 1 + width
        return body(data, at + 1)

    return decode


def _decoder_of(found: pa.DataType) -> tuple[Decoder, int]:
    width = width_of(found)
    if width is not None:
        return _integer_decoder(found, width), width
    if pa.types.is_floating(found):
        return _float_decoder(found.bit_width // 8), found.bit_width // 8
    if pa.types.is_decimal(found):
        return _decimal_decoder(found.scale), DECIMAL_BYTES
    if is_text(found):
        return _text, 0
    if is_bytes(found):
        return _unescaped, 0
    if pa.types.is_struct(found):
        return _struct_decoder(found), 0
    if pa.types.is_map(found):
        return _run_decoder(_pair_decoder(found)), 0
    if is_array(found):
        return _run_decoder(decoder(found.value_type)), 0
    raise CorruptState(f"a column of type {found} has no place in a replica")


def _integer_decoder(found: pa.DataType, width: int) -> Decoder:
    top = 1 << (8 * width - 1)
    convert = from_integer(found) or int
    return lambda data, at: (convert(int.from_bytes(data[at : at + width], "big") - top), at + width)


def _decimal_decoder(scale: int) -> Decoder:
    top = 1 << (8 * DECIMAL_BYTES - 1)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        end = at + DECIMAL_BYTES
        return scaled(int.from_bytes(data[at:end], "big") - top, scale), end

    return decode


def _float_decoder(width: int) -> Decoder:
    form, top = {4: ">f", 8: ">d"}[width], 1 << (8 * width - 1)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        turned = int.from_bytes(data[at : at + width], "big")
        bits = turned ^ top if turned & top else turned ^ (2 * top - 1)
        return struct.unpack(form, bits.to_bytes(width, "big"))[0], at + width

    return decode


def _text(data: bytes, at: int) -> tuple[str, int]:
    raw, end = _unescaped(data, at)
    return raw.decode(), end


def _unescaped(data: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while True:
        end = data.index(NULL, end)
        if data[end + 1] == 0:
            return data[at:end].replace(ESCAPED, NULL), end + 2
        end += 2


def _struct_decoder(found: pa.DataType) -> Decoder:
    fields = [(field.name, decoder(field.type)) for field in found]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value = {}
        for name, each in fields:
            value[name], at = each(data, at)
        return value, at

    return decode


def _pair_decoder(found: pa.DataType) -> Decoder:
    key, item = decoder(found.key_type), decoder(found.item_type)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        first, at = key(data, at)
        second, at = item(data, at)
        return (first, second), at

    return decode


def _run_decoder(element: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        while data[at] != 0:
            value, at = element(data, at + 1)
            values.append(value)
        return values, at + 1

    return decode
