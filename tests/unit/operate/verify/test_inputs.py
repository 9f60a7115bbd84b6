"""The rows of an input are compared with its record once: on the way, or here where the record has no checksum."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.jobs.operate.verify import inputs
from strandline.jobs.operate.verify.inputs import InputUnreadable, input_rows
from strandline.state_store.delta import reader
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.layout import Lake
from tests.support.format_1 import unpacked
from tests.support.keyed_table import made, rows
from tests.support.on_disk import on_disk


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that were hashed, call by call."""
    counts: list[int] = []

    def counting(batches: Iterable[pa.RecordBatch]) -> Digest:
        found = list(batches)
        counts.append(sum(batch.num_rows for batch in found))
        return digest_of_table(found)

    monkeypatch.setattr(reader, "digest_of_table", counting)
    monkeypatch.setattr(inputs, "digest_of_table", counting)
    return counts


def test_the_rows_of_an_input_are_hashed_once(lake: Lake, hashed: list[int]) -> None:
    table = made(lake.table("x").parent)
    head = table.apply(rows(range(9)))
    hashed.clear()
    assert input_rows("t", head.version, lake, state=True).num_rows == 9
    assert sum(hashed) == 9


def test_a_record_without_a_checksum_is_compared_here(tmp_path: Path, hashed: list[int]) -> None:
    """The reader cannot say which of the two is wrong, rows or record."""
    lake = unpacked(tmp_path)
    assert input_rows("visits", 2, lake, state=False).num_rows == 4
    assert len(hashed) > 1
    commit = on_disk(lake.table("visits") / "_delta_log" / f"{2:020d}.json")
    text = commit.read_text()
    at = text.index("digest") + len('digest\\":\\"')
    commit.write_text(f"{text[:at]}{(int(text[at], 16) + 1) % 16:x}{text[at + 1 :]}")
    with pytest.raises(InputUnreadable, match="are not those of its record: verify 'visits'"):
        input_rows("visits", 2, lake, state=False)
