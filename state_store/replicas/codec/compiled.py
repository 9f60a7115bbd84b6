"""The function that reads one row back, written for its schema and compiled once.

    def decode(value):                              k BIGINT, name VARCHAR, at TIMESTAMP
        nulls, s0, s1, s2 = unpack(value)
        e1 = 33 + s1
        if e1 != len(value): raise ValueError
        row = {'k': s0, 'name': c1(value[33:e1]), 'at': c2(s2)}
        return row if nulls == none else with_nulls(row, nulls)

A loop over the columns does the same in twice the time, which is most of a read from memory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.state_store.replicas.codec.columns import StoredColumn


def compiled(columns: Sequence[StoredColumn], begin: int, null_bytes: int) -> Callable[[bytes], dict[str, Any]]:
    """The function from the bytes of a row to its values.

    It raises ValueError, IndexError or struct.error for bytes that are no row's.

    Args:
        begin: where the bits of NULLs begin.
        null_bytes: how many bytes they have.
    """
    slots = struct.Struct(f"<{begin}x{null_bytes}s" + "".join(column.form for column in columns))
    names = [column.name for column in columns]

    def with_nulls(row: dict[str, Any], bits: bytes) -> dict[str, Any]:
        nulls = int.from_bytes(bits, "little")
        return row | {name: None for number, name in enumerate(names) if nulls >> number & 1}

    known: dict[str, Any] = {"unpack": slots.unpack_from, "none": bytes(null_bytes), "with_nulls": with_nulls}
    known |= {f"c{number}": column.convert for number, column in enumerate(columns)}
    exec(_source(columns, slots.size), known)  # noqa: S102 (of numbers and of names as literals, see `_source`)
    made: Callable[[bytes], dict[str, Any]] = known["decode"]
    return made


def _source(columns: Sequence[StoredColumn], size: int) -> str:
    """The text of the function. Of a schema it holds the names alone, each as a literal."""
    ends, items, end = [], [], str(size)
    for number, column in enumerate(columns):
        value = f"s{number}"
        if column.variable:
            begin, end = end, f"e{number}"
            ends.append(f"    {end} = {begin} + s{number}\n")
            value = f"c{number}(value[{begin}:{end}])"
        elif column.converts:
            value = f"c{number}(s{number})"
        items.append(f"{column.name!r}: {value}")
    taken = "".join(f", s{number}" for number in range(len(columns)))
    return (
        f"def decode(value):\n    nulls{taken}, = unpack(value)\n{''.join(ends)}"
        f"    if {end} != len(value): raise ValueError\n    row = {{{', '.join(items)}}}\n"
        "    return row if nulls == none else with_nulls(row, nulls)\n"
    )
