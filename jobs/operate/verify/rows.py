"""The checks of a table's rows: their digest and their number, counted from the files, are what the record says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.operate.verify.findings import counted, failed, passed
from strandline.state_store.digest import Digest

if TYPE_CHECKING:
    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.opened import Opened


def check_digest(table: Opened, rows: Digest) -> Outcome:
    """The rows at the head have the digest of the record."""
    said = Digest.parse(table.record.digest)
    if (said.first, said.second) != (rows.first, rows.second):
        return failed(f"the rows of version {table.version} have the digest {rows}, the record says {said}")
    return passed(str(rows))


def check_row_count(table: Opened, rows: Digest) -> Outcome:
    """There are as many rows at the head as the record says."""
    if rows.count != table.record.rows:
        said = table.record.rows
        return failed(f"version {table.version} has {counted(rows.count, 'row')}, the record says {said}")
    return passed(counted(rows.count, "row"))
