"""The result of a statement: the rows that are still to be sent, or only the word for what was done.

A query's rows are whole before the first is sent, in Arrow form, so that the process that made them is free for others
while a client takes its time. They are bounded by the limits of an answer, and all answers of a server by a budget.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import types as t
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.model.types import SqlType
    from strandline.jobs.server.postgres.rows import CopyForm
    from strandline.jobs.server.postgres.wire_types import WireColumn

HELD_BYTES: Final = 512 << 20
"""Of answers that clients have not taken yet, and of what their sessions keep: eight of the largest."""


class Budget:
    """The bytes that a server holds for clients: answers, prepared statements, parameters. For one event loop."""

    def __init__(self, most: int = HELD_BYTES) -> None:
        self._most = most
        self.held = 0

    def hold(self, size: int) -> None:
        """Count so many bytes.

        Raises:
            Refusal: that would be more than the server may hold.
        """
        if self.held + size > self._most:
            raise Refusal(
                SqlState.TOO_LARGE,
                f"the server holds {self.held:,} bytes of answers that nobody has taken, and of prepared statements",
                hint="fetch from open cursors to their end, or close them; DEALLOCATE what is not asked again",
            )
        self.held += size

    def release(self, size: int) -> None:
        """Count so many bytes no more."""
        self.held -= size

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count so many bytes for the duration of the block. Raises Refusal."""
        self.hold(size)
        try:
            yield
        finally:
            self.release(size)


@dataclass(frozen=True)
class FewRows:
    """Some rows that are Python values already, with what is asked of a table of Arrow's.

    Attributes:
        rows: values as Arrow's `to_pylist` gives them.
        types: of the columns.
    """

    rows: Sequence[Sequence[object]]
    types: tuple[SqlType, ...]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Few enough to count as none."""
        return 0

    def slice(self, begin: int, count: int | None = None) -> FewRows:
        """The rows from a place on."""
        return FewRows(self.rows[begin : None if count is None else begin + count], self.types)

    def table(self) -> pa.Table:
        """The rows in Arrow form."""
        import pyarrow as pa

        columns = [[row[place] for row in self.rows] for place in range(len(self.types))]
        arrays = [pa.array(values, kind.arrow()) for values, kind in zip(columns, self.types, strict=True)]
        return pa.Table.from_arrays(arrays, [str(place) for place in range(len(arrays))])


@dataclass
class Result:
    """What a statement came to.

    Attributes:
        tag: what a client hears at the end, `BEGIN`; with rows their number is added, `SELECT 12`.
        columns: None without rows.
        rows: those that are left.
        warnings: that go before it.
        told: settings that go to the client unasked.
        copy: how the rows go as the data of a COPY; None: as rows.
    """

    tag: str
    columns: tuple[WireColumn, ...] | None = None
    rows: pa.Table | FewRows | None = None
    warnings: tuple[str, ...] = ()
    told: dict[str, str] = field(default_factory=dict)
    copy: CopyForm | None = None
    _held: int = 0
    _budget: Budget | None = None

    @classmethod
    def of_texts(cls, tag: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Result:
        """Rows of texts."""
        import pyarrow as pa

        columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(names))]
        return cls(tag, columns_of(names, [t.VARCHAR] * len(names)), pa.table(columns, names=[*names]))

    @property
    def left(self) -> int:
        """The number of rows that are left."""
        return 0 if self.rows is None else self.rows.num_rows

    def held(self, size: int, budget: Budget) -> Result:
        """This result, counted in a budget until its last row is taken or it is closed. Raises Refusal."""
        budget.hold(size)
        self._held, self._budget = size, budget
        return self

    def take(self, count: int | None) -> pa.Table | FewRows:
        """The next rows; None: all that are left."""
        assert self.rows is not None
        taken = self.rows.slice(0, count)
        self.rows = self.rows.slice(taken.num_rows)
        if not self.rows.num_rows:
            self._let_go()
        return taken

    def close(self) -> None:
        """Let go of what is left."""
        self._let_go()

    def _let_go(self) -> None:
        if isinstance(self.rows, FewRows):
            self.rows = self.rows.slice(self.rows.num_rows)
        elif self.rows is not None:
            self.rows = self.rows.schema.empty_table()
        self._release()

    def _release(self) -> None:
        if self._budget is not None:
            self._budget.release(self._held)
            self._held, self._budget = 0, None
