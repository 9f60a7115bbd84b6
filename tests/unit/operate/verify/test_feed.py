"""A feed whose digests add up can still be wrong: a row that goes without having come."""

from __future__ import annotations

from jobs.operate.verify.verify import verify
from state_store.delta import reader
from state_store.digest import Digest
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
