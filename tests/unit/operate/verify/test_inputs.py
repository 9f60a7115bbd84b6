"""The rows of an input are compared with its record once, on the way."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from strandline.jobs.operate.verify.inputs import input_rows
from strandline.state_store.delta import reader
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.layout import LakeLayout
from tests.support.keyed_table import made, rows


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that were hashed, call by call."""
    counts: list[int] = []

    def counting(batches: Iterable[pa.RecordBatch]) -> Digest:
        found = list(batches)
        counts.append(sum(batch.num_rows for batch in found))
        return digest_of_table(found)

    monkeypatch.setattr(reader, "digest_of_table", counting)
    return counts


def test_the_rows_of_an_input_are_hashed_once(lake: LakeLayout, hashed: list[int]) -> None:
    table = made(lake.table("x").parent)
    head = table.apply(rows(range(9)))
    hashed.clear()
    assert input_rows("t", head.version, lake, state=True).num_rows == 9
    assert sum(hashed) == 9
