"""The terms of a pull query: what it may take, and what its answer must reflect."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.consistent_snapshot import Pinned, settled
from strandline.jobs.serve.errors import NotYet, RequestRefused, TimeLimit, TooLarge
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    import pyarrow as pa

    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, Reflected
    from strandline.state_store.layout import LakeLayout


# What one query may take: time, memory, and the rows and bytes of its answer.


@dataclass(frozen=True)
class QueryLimits:
    """The most that a query may take; None: as much as there is, as on the command line.

    Attributes:
        seconds: from its beginning to the last row of its answer.
        memory_bytes: of the rows that it reads, and again of what DuckDB computes with.
        rows, answer_bytes: of its answer, in Arrow form.
    """

    seconds: float | None = None
    memory_bytes: int | None = None
    rows: int | None = None
    answer_bytes: int | None = None


NO_LIMITS = QueryLimits()


@dataclass
class QueryBudget:
    """What a query has taken so far. One thread works with it."""

    limits: QueryLimits
    begun: float = field(default_factory=time.monotonic)
    read_bytes: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The time that is left; None without a limit."""
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (time.monotonic() - self.begun)

    def check_time(self) -> None:
        """Raise TimeLimit when the time is over."""
        left = self.seconds_left
        if left is not None and left <= 0:
            raise TimeLimit(
                f"the query was stopped after {self.limits.seconds:g} s",
                hint="ask for less, or define a view that does the work",
            )

    def reading(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches as they are read from a table.

        Raises:
            TimeLimit: the time is over.
            TooLarge: they take more memory than a query may.
        """
        for batch in batches:
            self.check_time()
            self.read_bytes += batch.nbytes
            if self.limits.memory_bytes is not None and self.read_bytes > self.limits.memory_bytes:
                raise TooLarge(
                    f"the query reads more than {self.limits.memory_bytes:,} bytes",
                    hint="name fewer columns, give keys in WHERE, or define a view that does the work",
                )
            yield batch

    def answering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of the answer.

        Raises:
            TimeLimit: the time is over.
            TooLarge: there are more rows or bytes than an answer may have.
        """
        rows = size = 0
        for batch in batches:
            self.check_time()
            rows, size = rows + batch.num_rows, size + batch.nbytes
            for found, most, unit in ((rows, self.limits.rows, "rows"), (size, self.limits.answer_bytes, "bytes")):
                if most is not None and found > most:
                    raise TooLarge(f"the answer has more than {most:,} {unit}", hint="add a LIMIT, or ask for less")
            yield batch


# `at_least`: what an answer must reflect at the least, so that a client reads its own writes.
#
# 12                    a version of a table
# visits@0:41,1:17      records of a topic: the position that an insert answered with

_POSITION: Final = re.compile(r"(.+)@((?:[0-9]{1,9}:[0-9]{1,18})(?:,[0-9]{1,9}:[0-9]{1,18}){0,999})")


@dataclass(frozen=True)
class Least:
    """The least that an answer must reflect: a version of a table, or records of a topic.

    Attributes:
        topic: empty for a version.
        offsets: {partition: the offset behind the last record}.
    """

    version: int = -1
    topic: str = ""
    offsets: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Least:
        """What `at_least` says: a version, or the position that an insert answered with.

        Raises:
            RequestRefused: neither.
        """
        if text.isdecimal() and text.isascii() and len(text) <= 18:
            return cls(int(text))
        found = _POSITION.fullmatch(text)
        if found is None:
            raise RequestRefused("at_least is a version, or the position that an insert answered with")
        pairs = (part.split(":") for part in found[2].split(","))
        return cls(topic=found[1], offsets=tuple((int(partition), int(offset)) for partition, offset in pairs))

    def met_by(self, standing: Reflected | None) -> bool:
        """True if a version of the table itself reflects it."""
        return standing is not None and standing.version >= self.version and self._read_by(standing)

    def met_below(self, standing: Reflected, table: str, lake: LakeLayout) -> bool:
        """True if a version of another table, which reflects `table`, reflects it.

        Versions of `table` that changed no rows count as the one before: a view may never have read them.
        """
        return standing.versions[table] >= settled(lake, table, self.version) and self._read_by(standing)

    def _read_by(self, standing: Reflected) -> bool:
        reached = standing.offsets.get(self.topic)
        ends = {} if reached is None else reached.ends
        return all(ends.get(partition, 0) >= offset for partition, offset in self.offsets)


def no_versions(view: str) -> RequestRefused:
    """The error of a version of a partial view."""
    return RequestRefused(
        sentence("'{}' is a partial view and has no versions of its own", Name(view)),
        hint="at_least takes the position that an insert answered with",
    )


def check_cut(
    cut: ConsistentSnapshot, at_least: Mapping[str, Least], lake: LakeLayout, computed: Container[str] = ()
) -> None:
    """Check that a cut reflects what is asked for.

    Args:
        at_least: {table of the query, or one below those: the least of it}.
        computed: partial views of the query; the cut is that of the tables below them.

    Raises:
        NotYet: it does not.
        RequestRefused: no table of the query is, or reads, one that is named; or it is a version of a partial view.
    """
    absent = any(standing is None for standing in cut.tables.values())
    for name, least in at_least.items():
        if name in computed:
            if not least.topic:
                raise no_versions(name)
            if not cut.reaches(least.topic, least.offsets):
                raise NotYet.of(name)
            continue
        readers = [each for each in cut.tables.values() if each is not None and name in each.versions]
        if not readers and not absent:
            raise RequestRefused(
                sentence("at_least names '{}', which the query does not read", Name(name)),
                hint="name its tables, or those below them",
            )
        met = (least.met_by(each) if each.table == name else least.met_below(each, name, lake) for each in readers)
        if not readers or (name in cut.tables and cut.tables[name] is None) or not all(met):
            raise NotYet.of(name)


@dataclass(frozen=True)
class Terms:
    """On what terms a query is answered.

    Attributes:
        at_least: {table: the least of it that the answer must reflect}.
        unnamed: whose names the columns get that nobody named.
        pinned: the cut that is read; None: the newest one.
    """

    limits: QueryLimits = NO_LIMITS
    at_least: Mapping[str, Least] = field(default_factory=dict)
    unnamed: Unnamed = "postgres"
    pinned: Pinned | None = None


FREELY: Final = Terms()
"""As on the command line: it takes what it needs, and answers by the newest cut."""
