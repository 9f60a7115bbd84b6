"""What became of a query, and why; the reasons of refusals without the names of the day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from strandline.state_store.errors import InternalError, StrandlineError

Result = Literal["right", "wrong", "refused", "as documented", "answered", "not asked"]
RESULTS: Final[tuple[Result, ...]] = ("right", "wrong", "refused", "as documented", "answered", "not asked")

# What DuckDB says of our own text, not of the rows: a rule that was not checked.
_ENGINE_FAULT: Final = re.compile(
    r"Binder Error|Catalog Error|Parser Error|INTERNAL Error|Not implemented Error|AssertionError|Internal Error"
)


@dataclass(frozen=True)
class Outcome:
    """A query as a view or a pull.

    Attributes:
        mode: `view`, `pull`, `refused` (a SELECT that the file refuses), or `file` for one that is not read.
        reason: of what is not right.
    """

    suite: str
    file: str
    line: int
    mode: str
    result: Result
    reason: str = ""
    sql: str = ""

    def __str__(self) -> str:
        return (
            f"{self.suite} {self.file}:{self.line} [{self.mode}] {self.result}: {self.reason}\n    {self.sql.strip()}"
        )


def refusal_of(error: Exception) -> tuple[Result, str]:
    """The outcome of a query that ends in an error: a typed one refuses it, any other is a fault."""
    if isinstance(error, StrandlineError) and not isinstance(error, InternalError):
        raw = error.code == "pipeline.refresh_failed" or _ENGINE_FAULT.search(error.message)
        if not raw:
            return "refused", f"{error.code}: {shape(error.message)}"
    return "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def shape(message: str) -> str:
    """A message without what it quotes."""
    first = message.splitlines()[0]
    first = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", first)
    return re.sub(r"\b\d+\b", "N", first)[:160]
