"""The stored form of a table: its columns, its key, and the Delta properties that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strandline.state_store.columns import FILE, POSITION, STATE

# Readers can resume, and tables be restored, from versions up to this age. A month: longer than any holiday's outage;
# Delta's default for removed files is 7 days, after which it refuses to read the changelog even if the files remain.
RECOVERY_HORIZON_DAYS = 30
RECOVERY_HORIZON_MS = RECOVERY_HORIZON_DAYS * 86_400_000

# With so few files each commit's checksum file holds the whole state of the table; a checkpoint every 10 commits
# (Delta's default) would slow down every tenth epoch, and readers would gain nothing.
CHECKPOINT_INTERVAL = 50


@dataclass(frozen=True)
class TableSpec:
    """The stored form of one table.

    Attributes:
        name: the table's name in the lake.
        columns: the visible columns in order, (name, Spark DDL type).
        storage: `append`: rows are only inserted. `keyed`: at most one row per key; rows change and are deleted.
        key: the columns that identify a row, `__state.<field>` for one that is not visible. Empty for an append table,
            and for a keyed one that holds a single row.
        state: the Spark DDL type of the `__state` struct, or None.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    storage: Literal["append", "keyed"]
    key: tuple[str, ...] = ()
    state: str | None = None

    @property
    def visible(self) -> tuple[str, ...]:
        """The names of the visible columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """Every stored column, (name, Spark DDL type): the visible ones, then `__state` if there is one."""
        return (*self.columns, (STATE, self.state)) if self.state else self.columns

    @property
    def ddl(self) -> str:
        """The stored columns as a Spark schema."""
        return ", ".join(f"{quoted(name)} {spark_type}" for name, spark_type in self.stored)

    @property
    def placed_ddl(self) -> str:
        """The stored columns and the place of a row, as a Spark schema."""
        return f"{self.ddl}, `{FILE}` STRING, `{POSITION}` BIGINT"

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns of which the log holds each file's smallest and largest value: readers ask for keys."""
        return self.key if self.storage == "keyed" else self.visible

    @property
    def properties(self) -> dict[str, str]:
        """The Delta properties of the table."""
        horizon = f"interval {RECOVERY_HORIZON_DAYS} days"
        # An update marks the old row in a deletion vector; without them it would rewrite the row's file.
        feature = {"keyed": "delta.enableDeletionVectors", "append": "delta.appendOnly"}[self.storage]
        return {
            "delta.enableChangeDataFeed": "true",
            feature: "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            "delta.deletedFileRetentionDuration": horizon,
            "delta.logRetentionDuration": horizon,
        }


def quoted(path: str) -> str:
    """A column, or a dotted path into `__state`, quoted for Spark SQL."""
    head, dot, rest = path.partition(".")
    parts = (head, rest) if dot and head == STATE else (path,)
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
