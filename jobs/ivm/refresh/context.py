"""The surroundings of a refresh: session, lake and writer, passed on untouched, and the heads of the tables."""

from __future__ import annotations

import math
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.expect.expectations import approved_head
from strandline.state_store.delta import heads, reader
from strandline.state_store.delta.commit import flush_log
from strandline.state_store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.jobs.functions.python import Library
    from strandline.jobs.ivm.refresh.runtime import Span
    from strandline.jobs.model.settings import EngineChoice
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from strandline.state_store.layout import LakeLayout


@dataclass(frozen=True)
class Spread:
    """How first refreshes are shared by Spark's tasks (`jobs.ivm.refresh.on_spark`).

    Attributes:
        fewest_rows: of all inputs, from which on they are.
        memory_mb: of the DuckDB engines of one executor.
        arrangements: folder and bytes, see `state_store.arrangements.arrangements_in`.
        read_again: rows that all parts may read of inputs which each of them reads whole, as a multiple of the rows
            that are dealt out to them: 1 is as much again.
    """

    fewest_rows: int
    memory_mb: int
    arrangements: tuple[Path | None, int]
    read_again: float = 1.0

    def most_parts(self, dealt: int, whole: int) -> float:
        """The parts that are worth what they read whole.

        Args:
            dealt: rows that are dealt out.
            whole: rows that each part reads.
        """
        return self.read_again * dealt / whole if whole else math.inf


@dataclass(frozen=True)
class RunContext:
    """A run's surroundings. It has at least one engine.

    Attributes:
        sessions: Spark's, of which the first starts its JVM; None: there are none to be had here.
        writer: `pipeline/incarnation`, for the commits' records.
        functions: those that users wrote, when the views may call them.
        duckdb_engine: the one of this process; None: there is none here.
        engine: which of them is wanted.
        spread: how first refreshes are shared by tasks; None: they are not.
    """

    sessions: SparkSessions | None
    lake: LakeLayout
    writer: str
    functions: Library | None = None
    duckdb_engine: DuckDBEngine | None = None
    engine: EngineChoice = "auto"
    spread: Spread | None = None


@dataclass(frozen=True)
class Owner:
    """The definition that a stage is maintained for.

    Attributes:
        fingerprint: of the definition; the table's last commit must carry the same.
        vector_prefix: for one of several queries that feed one stream: its entries in the vector are `prefix/input`.
            The stream has a fingerprint of its own then, which is left as it is.
    """

    fingerprint: str
    vector_prefix: str | None = None

    def entry(self, relation: str) -> str:
        """The name of an input in the version vector."""
        return relation if self.vector_prefix is None else f"{self.vector_prefix}/{relation}"

    @property
    def owns_table(self) -> bool:
        """True when the whole table is the definition's."""
        return self.vector_prefix is None


class Heads:
    """The heads of a lake's tables, each read once: all stages of one refresh see the same versions.

    What the refresh itself commits is noted here. The store looks again before each commit, so a head that another
    writer has moved in between is found there, and only there.

    Args:
        names: tables that must be seen at one moment; others are read when they are asked for.
        gated: tables with blocking expectations: who computes from them reads what is approved, and no further.
    """

    def __init__(self, lake: LakeLayout, names: Iterable[str] = (), gated: Collection[str] = ()) -> None:
        self._lake = lake
        self._gated = frozenset(gated)
        self._known: dict[str, Head | None] = {}
        self._approved: dict[str, Head | None] = {}
        self._broken: dict[str, StoreError] = {}
        self._flushed: set[tuple[str, int]] = set()
        for name in sorted(names):
            try:
                self.input(name)
            except StoreError as error:  # it stops who reads the table, and nobody else
                self._broken[name] = error

    def find(self, name: str) -> Head | None:
        """The head of a table; None when it has not been made yet.

        Raises:
            TableLost, CorruptState, ForeignWrite: it cannot be read.
        """
        if name in self._broken:
            raise self._broken[name]
        if name not in self._known:
            self._known[name] = heads.head(self._lake, name)
        return self._known[name]

    def input(self, name: str) -> Head | None:
        """The head of a table as far as it may be computed from; None when there is none, or nothing is approved yet.

        Raises:
            CorruptState, VersionGone: the approval does not read back, or is of a version that is gone.
        """
        if name not in self._gated:
            return self.find(name)
        if name not in self._approved:
            self._approved[name] = approved_head(self._lake, name, self.find(name))
        return self._approved[name]

    def at(self, name: str, version: int) -> TableVersion | None:
        """What a vector says of that version of a table; None when the table has not come so far, or is not there.

        Raises:
            VersionGone: the log no longer reaches back to it.
        """
        head = self.find(name)
        if head is None or version > head.version:
            return None
        return head.at if version == head.version else reader.version_at(self._lake.table(name), version)

    def flush(self, spans: Iterable[Span]) -> None:
        """Flush the logs of the inputs of a commit, which names their versions: each once."""
        for span in spans:
            seen = (span.relation.name, span.upto)
            if seen not in self._flushed:
                flush_log(self._lake.table(span.relation.name), span.reached)
                self._flushed.add(seen)

    def forget(self, name: str) -> None:
        """The table was set aside: its head is to be read again."""
        for found in (self._known, self._approved, self._broken):
            found.pop(name, None)

    def moved(self, name: str, head: Head) -> None:
        """Note a commit of this refresh."""
        self._known[name] = head


# Spark sessions for refreshes: one for each that runs, used again by the next.
#
# A refresh names its inputs by temporary views, and several run side by side, so each needs a session of its own. A
# new one costs Spark a catalog, an analyzer and a function registry, and is held for a while by what it persisted: a
# run of days that opened one for each epoch filled its heap.


class SparkSessions:
    """The sessions of one JVM, of which each is lent to one refresh at a time.

    Args:
        first: gives the session that the others are opened beside; it starts the JVM when it must.
    """

    def __init__(self, first: Callable[[], SparkSession]) -> None:
        self._first = first
        # Appending and popping are atomic, and that is all that threads do with it.
        self._free: deque[SparkSession] = deque()

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session that nobody else uses meanwhile. One in which something failed is not used again."""
        try:
            session = self._free.pop()
        except IndexError:
            session = self._first().newSession()
        yield session
        self._free.append(session)
