"""The proof that a maintenance changed no row: the rows have the record's digest, and the kept feed folds to them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.operate.verify.feed import check_feed
from strandline.jobs.operate.verify.rows import check_digest
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError
from strandline.state_store.wording import joined

if TYPE_CHECKING:
    from strandline.jobs.operate.verify.opened import Opened


@dataclass(frozen=True)
class Proof:
    """Whether a table is what its record says, by two ways of counting; `seconds` is what both took."""

    ok: bool
    fault: str
    seconds: float


def proved(table: Opened) -> Proof:
    """The proof for a table at its head. What does not read is a fault, not an error."""
    began = time.monotonic()
    try:
        rows = reader.digest_of_rows(table.path, table.snapshot)
        outcomes = [check_digest(table, rows), check_feed(table, rows)]
        fault: str = joined("; ", (outcome.what for outcome in outcomes if outcome.ok is False))
    except StoreError as error:
        fault = error.message
    return Proof(not fault, fault, round(time.monotonic() - began, 3))
