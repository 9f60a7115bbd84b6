"""The questions of one client to the processes that answer queries, within its limits, until it cancels one; and the
result of a statement: the rows that are still to be sent, or only the word for what was done.

A query's rows are whole before the first is sent, in Arrow form, so that the process that made them is free for others
while a client takes its time. They are bounded by the limits of an answer, and all answers of a server by a budget.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType
from strandline.jobs.serve.errors import TooStale, Unauthenticated
from strandline.jobs.serve.shape import shape_of
from strandline.jobs.serve.terms import Terms
from strandline.jobs.server.postgres.messages import state_of
from strandline.jobs.server.postgres.question import Described, RowsAsked, TypedQuestion, TypesAsked
from strandline.jobs.server.postgres.system_catalog import Caller
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState, columns_of
from strandline.jobs.server.state.pool import Cancelling
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.consistent_snapshot import Pinned
    from strandline.jobs.serve.watch import Lag
    from strandline.jobs.server.postgres.parameters import Parameter
    from strandline.jobs.server.postgres.rows import CopyForm
    from strandline.jobs.server.postgres.settings import SessionSettings
    from strandline.jobs.server.postgres.wire_types import WireColumn
    from strandline.jobs.server.state.access import Token
    from strandline.jobs.server.state.by_key import Keyed
    from strandline.jobs.server.state.server import Server
    from strandline.jobs.server.state.worker import Answered, Question


_HELD_BYTES: Final = 512 << 20
"""Of answers that clients have not taken yet, and of what their sessions keep: eight of the largest."""


class Budget:
    """The bytes that a server holds for clients: answers, prepared statements, parameters. For one event loop."""

    def __init__(self, most: int = _HELD_BYTES) -> None:
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


A = TypeVar("A")

log = logging.getLogger("strandline.server")

_ROUTE: Final = "postgres"
_SUCCESS: Final = "00000"
_CUT_SECONDS: Final = 600.0
"""A transaction reads its cut so long; a client that forgets to end one holds no version for longer."""
_STALE_SECONDS: Final = 5.0
"""An answer that is too far behind is waited for so long: some epochs."""
_AGAIN_SECONDS: Final = 0.2
_KEPT_TEXTS: Final = 1000
"""Statements of all clients: each is a text and its types."""
_KEPT_LETTERS: Final = 10_000
"""The longest of them: ten megabytes in all."""
_SAMPLES: Final = {
    BaseType.BOOLEAN: "TRUE",
    BaseType.INT: "1",
    BaseType.BIGINT: "1",
    BaseType.VARCHAR: "'x'",
    BaseType.DATE: "CAST('2000-01-01' AS DATE)",
    BaseType.TIMESTAMP: "CAST('2000-01-01T00:00:00' AS TIMESTAMP)",
}
"""A literal of each type that is compared with keys, for a statement whose parameters have no values yet."""


@dataclass(frozen=True)
class Client:
    """Who is connected. `password` is the token's text: it is looked up for every query, so one that ends, ends."""

    user: str
    database: str
    password: str


@dataclass(frozen=True)
class KeptTexts:
    """What is known of texts that clients prepare, for all of them. It holds of the definitions that it was found over.

    Attributes:
        bindings: {a text and the oids that were given: the types of its parameters}.
        described: {the same and who asked: what it takes and gives}.
    """

    bindings: dict[tuple[str, tuple[int, ...]], tuple[Catalog, TypedQuestion]] = field(default_factory=dict)
    described: dict[tuple[str, tuple[int, ...], Token], tuple[Catalog, Described]] = field(default_factory=dict)


K = TypeVar("K")
V = TypeVar("V")


def _keep(kept: dict[K, V], text: str, key: K, value: V) -> V:
    if len(kept) >= _KEPT_TEXTS:
        kept.clear()
    if len(text) <= _KEPT_LETTERS:
        kept[key] = value
    return value


class Asking:
    """The questions of one client, one at a time."""

    def __init__(self, server: Server, client: Client, kept: KeptTexts) -> None:
        self._server = server
        self._client = client
        self._kept = kept
        self._running: Cancelling | None = None

    def cancel(self) -> None:
        """End the query that runs, if one does."""
        if self._running is not None:
            self._running.cancel()

    async def rows(
        self, text: str, parameters: tuple[Parameter, ...], settings: SessionSettings, pinned: Pinned | None = None
    ) -> Answered | Keyed:
        """The rows of a SELECT, at the newest cut or at a pinned one. Raises StrandlineError."""
        token = self.token()
        allowed = settings.max_staleness()
        keyed = await self._by_key(text, parameters, token, pinned)
        if keyed is not None and (
            allowed is None or await asyncio.to_thread(self._server.topics.fresh, keyed.offsets, allowed)
        ):
            return keyed
        terms = replace(self._terms(settings), pinned=pinned)
        until = time.monotonic() + min(_STALE_SECONDS, self._server.options.wait_seconds)
        while True:
            found = await self._ask(RowsAsked(text, parameters, terms, token, self._caller(settings)))
            if allowed is None or not found.versions:
                break
            try:
                await asyncio.to_thread(self._server.topics.check, found.offsets, allowed)
                break
            except TooStale:
                if time.monotonic() > until or pinned is not None:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)
        self._server.note(found.versions)
        return found

    def lag(self, found: Answered | Keyed) -> Lag | None:
        """How far an answer is behind its topics; None where nobody knows."""
        return self._server.topics.lag(found.offsets)

    async def types(self, text: str, oids: tuple[int, ...], settings: SessionSettings) -> Described:
        """The types of a SELECT. Raises StrandlineError."""
        token = self.token()
        described = await self._described_by_key(text, oids, token)
        if described is not None:
            return described
        # Of a text that many prepare, each with a connection of its own; whoever may not read what it reads asks anew.
        kept, catalog, place = self._kept.described, self._server.catalogued.catalog, (text, oids, token)
        known = kept.get(place)
        if known is not None and known[0] is catalog:
            return known[1]
        asked = TypesAsked(text, oids, self._terms(settings), token, self._caller(settings))
        return _keep(kept, text, place, (catalog, await self._ask(asked)))[1]

    def describe_anew(self) -> None:
        """Forget how texts were described: a query process knows of other definitions before this one does."""
        self._kept.described.clear()

    async def pin(self) -> Pinned:
        """A cut for a transaction. Raises as `Cuts.pin`."""
        return await asyncio.to_thread(self._server.cuts.pin, _CUT_SECONDS)

    def unpin(self, pinned: Pinned) -> None:
        """Hold the cut of a transaction no more."""
        self._server.cuts.release(pinned)

    async def _by_key(
        self, text: str, parameters: tuple[Parameter, ...], token: Token, pinned: Pinned | None
    ) -> Keyed | None:
        """The answer of a replica; None where a query process has to answer, or to say what is wrong."""
        begun = time.perf_counter()
        if parameters:
            binding = await self._binding(text, tuple(each.oid for each in parameters))
            try:
                text = binding.with_values(parameters).text if binding is not None else ""
            except Refusal:
                return None
        found = await self._server.by_key.find(text, token, schema=True, pinned=pinned)
        if found is not None:
            self._measure(begun, _SUCCESS)
        return found

    async def _described_by_key(self, text: str, oids: tuple[int, ...], token: Token) -> Described | None:
        binding = await self._binding(text, oids)
        if binding is None or not all(each.base in _SAMPLES for each in binding.types):
            return None
        shape = shape_of(binding.with_each(lambda each: _SAMPLES[each.base]).text, schema=True)
        prepared = await self._server.by_key.prepared(shape, "postgres") if shape is not None else None
        if prepared is None or prepared.plan is None:
            return None
        token.require("read", *prepared.scopes)
        return Described(binding.oids, prepared.plan.names, prepared.plan.types)

    async def _binding(self, text: str, oids: tuple[int, ...]) -> TypedQuestion | None:
        """The types of a text's parameters, found once for all that ask it; None where the text has mistakes."""
        kept, catalog = self._kept.bindings, self._server.catalogued.catalog
        known = kept.get((text, oids))
        if known is not None and known[0] is catalog:
            return known[1]
        try:
            found = await asyncio.to_thread(TypedQuestion.of, text, oids, catalog)
        except StrandlineError:
            return None
        return _keep(kept, text, (text, oids), (catalog, found))[1]

    async def _ask(self, question: Question[A]) -> A:
        """The answer of a query process, measured and logged."""
        self._running = Cancelling()
        begun, state = time.perf_counter(), _SUCCESS
        try:
            return await asyncio.to_thread(self._server.queries.answer, question, self._running)
        except StrandlineError as error:
            state = state_of(error)
            raise
        finally:
            self._running = None
            self._measure(begun, state)

    def _measure(self, begun: float, state: str) -> None:
        seconds = time.perf_counter() - begun
        self._server.metrics.asked(_ROUTE, state, seconds)
        if log.isEnabledFor(logging.INFO):
            log.info("query", extra={"route": _ROUTE, "status": state, "ms": round(seconds * 1000, 2)})

    def _terms(self, settings: SessionSettings) -> Terms:
        limits, wanted = self._server.options.limits, settings.timeout_seconds()
        if wanted is not None and (limits.seconds is None or wanted < limits.seconds):
            limits = replace(limits, seconds=wanted)
        return Terms(limits)

    def token(self) -> Token:
        """The client's token as it is now. Raises Refusal: it is not valid any more."""
        try:
            return self._server.token_of(f"Bearer {self._client.password}")
        except Unauthenticated as error:
            message, hint = "the token is not valid any more", "`strandline token` makes one"
            raise Refusal(SqlState.NOT_AUTHENTICATED, message, hint=hint, fatal=True) from error

    def _caller(self, settings: SessionSettings) -> Caller:
        return Caller(self._client.database, self._client.user, settings.all())
