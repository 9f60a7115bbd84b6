"""The runtime of a refresh: what a stage's rule asks of the engine that runs it.

    relations the text names ──┐
      delta_…  old_…  new_…    ├─ run(text) ──> rows to append, or settled keys ──> append / settle ──> one commit
      self_old                 ┘

Spark over Delta is one runtime (`on_spark`), DuckDB over Delta another (`on_duckdb`); tests in their thousands run the
same rules over tables in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.rules.stored import difference
from strandline.jobs.model.stage import Stage
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from strandline.jobs.model.tables import Relation
    from strandline.state_store.commits import CommitRecord, Head, TableVersion


# A span: the versions of one relation that a refresh takes in.


@dataclass(frozen=True)
class Span:
    """The versions after `after` (None: everything) up to and with `upto`.

    Attributes:
        entry: the relation's name in the version vector.
        reached: the last version, as the vector will say it.
        head: of the relation's table; at or after `reached`.
    """

    relation: Relation
    entry: str
    after: int | None
    reached: TableVersion
    head: Head

    @property
    def upto(self) -> int:
        """The number of the last version."""
        return self.reached.version

    @property
    def lag(self) -> int:
        """Versions to take in."""
        return self.upto - (self.after if self.after is not None else -1)


Rows = TypeVar("Rows")
"""Rows that an engine has not computed yet: a data frame, a text."""

_FRESH = "fresh"


class Runtime(ABC, Generic[Rows]):
    """One engine at work on one stage, for one epoch."""

    dialect: Dialect

    @abstractmethod
    def run(self, text: str, *, stored: bool = True) -> Rows:
        """The rows that `text` gives over the relations that it names.

        Args:
            stored: `self_old` holds the rows before the epoch; otherwise none, as if the table were empty.

        Raises:
            VersionGone: an input's history no longer reaches back to the recorded version.
        """

    @abstractmethod
    def keep(self, name: str, settled: Rows) -> None:
        """Make the settled rows that exist a relation that the next text can name."""

    def compute(self, name: str, text: str) -> None:
        """Make the rows that a rule's text gives over an empty table a relation that the next text can name."""
        self.keep(name, self.run(text, stored=False))

    @abstractmethod
    def number(self, text: str) -> int:
        """The one number that `text` gives over the relations of the inputs that it names."""

    @abstractmethod
    def append(self, rows: Rows, record: CommitRecord) -> Head | None:
        """Add the rows in one commit; None, and no commit, when there are none."""

    @abstractmethod
    def settle(self, settled: Rows, record: CommitRecord) -> Head | None:
        """Bring the touched keys to their settled rows in one commit; None, and no commit, when no row changes."""


def maintain(
    runtime: Runtime[Rows], stage: Stage, text: str, record: CommitRecord, *, anew: bool = False
) -> Head | None:
    """Run a stage's rule and commit what it gives.

    Args:
        text: the rule's (`jobs.ivm.rules.maintenance`).
        anew: the rule gives all rows, of a table that has some already: stored is what differs.
    """
    if anew and storage_of(stage) == "keyed":
        runtime.compute(_FRESH, text)
        text = difference(stage, _FRESH, engine_of(runtime.dialect))
    rows = runtime.run(text)
    failpoint("inside-refresh")
    return runtime.append(rows, record) if storage_of(stage) == "append" else runtime.settle(rows, record)
