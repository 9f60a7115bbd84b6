"""A feed whose digests add up can still be wrong: a row that goes without having come."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
from deltalake import write_deltalake
from pyroaring import BitMap64

from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.commits import REBUILD
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import RowChanges, commit
from strandline.state_store.delta.data_files import CHECKSUM_TAG
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest, digest_of_table
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import record_of, rewritten, said
from tests.unit.operate.verify.lakes import MadeLake


def test_a_row_that_goes_and_never_came_is_found(made: MadeLake) -> None:
    path = made.lake.table("totals")
    before, now = (Digest.parse(each) for each in (reader.record_at(path, 1).digest, record_of(path)["digest"]))

    def without_rows(actions: list[dict[str, object]]) -> None:
        actions[:] = [action for action in actions if "add" not in action]

    rewritten(path, 1, without_rows)
    said(path, 1, digest=str(Digest()))
    said(path, digest=str(now + Digest(-before.first, -before.second, -before.count)))
    (feed,) = (check for check in verify(made.settings, ["totals"]) if check.check == "feed")
    assert feed.what == "version 2 takes away a row that is not there"


def test_what_was_before_a_rebuild_is_forgiven(made: MadeLake) -> None:
    """Rows of another tool, and records that do not speak of them, stay in the log: the rebuild set them right."""
    path = on_disk(made.lake.table("totals"))
    said(path, 1, digest=str(Digest()))
    rows = pa.table({"page": ["x"], "n": pa.array([1], pa.int64()), "seconds": [1.0]})
    write_deltalake(path, rows, mode="append", schema_mode="merge")
    assert {check.check for check in verify(made.settings, ["totals"]) if check.ok is False} == {"log"}
    current_head = reader.current_head(path)
    assert current_head is not None
    places = {
        unquote(name): BitMap64([0]) for name, body in read_snapshot(path, current_head.version).files.items()
        if CHECKSUM_TAG not in (body.get("tags") or {})
    }  # fmt: skip
    extra = digest_of_table(rows.to_batches())
    digest = Digest.parse(current_head.record.digest) + Digest(-extra.first, -extra.second, -extra.count)
    record = replace(current_head.record, epoch=current_head.record.epoch + 1, mode=REBUILD, digest=str(digest))
    commit(path, current_head, record, RowChanges(None, places))
    assert [check for check in verify(made.settings, ["totals"], deep=True) if check.ok is not True] == []
