"""A data file whose bytes are not those that were written is refused before Spark opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.state_store.errors import CorruptState, VersionGone
from tests.spark.table_model import Model
from tests.support.on_disk import on_disk


def _flip_in_footer(file: Path) -> None:
    """Another bit in the footer's metadata, which no checksum of Parquet's covers."""
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(bytes(data))


def test_a_flipped_bit_in_a_footer_is_noticed_by_every_read(model: Model) -> None:
    (file,) = on_disk(model.table.path).rglob("epoch-*/*.parquet")
    _flip_in_footer(file)
    head = model.table.head().version
    reads: list[Callable[[], object]] = [lambda: model.table.read(head), lambda: model.table.changes(0, head)]
    for read in reads:
        with pytest.raises(CorruptState, match="checksum") as refused:
            read()
        assert refused.value.where == str(file)
    _flip_in_footer(file)
    assert model.table.read(head).count() == 4


def test_a_file_that_is_gone_is_named_before_a_job_starts(model: Model) -> None:
    (file,) = on_disk(model.table.path).rglob("epoch-*/*.parquet")
    file.unlink()
    with pytest.raises(VersionGone, match="are gone"):
        model.table.read(model.table.head().version)
