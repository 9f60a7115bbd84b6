"""Two ways to decode records, which must give the same rows and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.model.definitions import Column

Decoded = tuple[Sequence["pa.Array"], Mapping[int, str]]
"""The arrays of the columns, and why records are dead letters, by their place."""


def assert_decoded_alike(columns: Sequence[Column], found: Decoded, expected: Decoded) -> None:
    """Assert that columns and reasons are the same, and each array what its type says."""
    assert found[1] == expected[1]
    for column, array, wanted in zip(columns, found[0], expected[0], strict=True):
        assert array.type == column.type.arrow()
        array.validate(full=True)
        assert array.equals(wanted), column
