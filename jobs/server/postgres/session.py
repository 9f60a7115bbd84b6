"""One client's session: what its statements do, whatever messages they came by.

I ──BEGIN──> T ──error──> E        nothing is written, so a transaction bounds the life of cursors; READ COMMITTED:
^────COMMIT, ROLLBACK─────┘        each query reads the newest cut of its own tables; REPEATABLE READ and
                                   SERIALIZABLE: all read the one cut that the first query pins
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.server.postgres.asking import FewRows, Result
from strandline.jobs.server.postgres.question import Described
from strandline.jobs.server.postgres.settings import DEFAULT_ISOLATION, ISOLATION, VERSIONS
from strandline.jobs.server.postgres.statements import (
    Back,
    Begin,
    Close,
    Copy,
    Deallocate,
    Declare,
    Done,
    End,
    Fetch,
    Isolation,
    Query,
    Reset,
    Savepoint,
    SessionStatement,
    Set,
    ShowSetting,
)
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState, columns_of
from strandline.jobs.server.state.by_key import Keyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.serve.consistent_snapshot import Pinned
    from strandline.jobs.server.postgres.asking import Asking, Budget
    from strandline.jobs.server.postgres.parameters import Parameter
    from strandline.jobs.server.postgres.settings import SessionSettings
    from strandline.jobs.server.postgres.wire_types import WireColumn

Values = tuple["Parameter", ...]

IDLE: Final = b"I"
IN_TRANSACTION: Final = b"T"
FAILED: Final = b"E"
_PINNING: Final = ("repeatable read", "serializable")


Told = tuple[tuple[str, int], ...]
"""The name and oid of each column, as a client was told them."""


@dataclass
class Prepared:
    """A prepared statement.

    Attributes:
        oids: of its parameters, as the client gave them.
        told: of its columns, once it was described; clients read all rows by that, however often it is executed.
    """

    statement: SessionStatement
    oids: tuple[int, ...]
    told: Told | None = None


@dataclass
class Portal:
    """A statement with its parameters, and its result once it has run; a cursor is one too.

    Attributes:
        formats: of the columns, as the client wants them; empty: all text; one: that of all.
        hold: it outlives the transaction.
        size: the bytes of its parameters.
        told: the columns of its prepared statement, if that was described.
    """

    statement: SessionStatement
    parameters: Values = ()
    formats: tuple[int, ...] = ()
    result: Result | None = None
    hold: bool = False
    size: int = 0
    told: Told | None = None


def told_of(columns: Sequence[WireColumn]) -> Told:
    """What a client is told of columns."""
    return tuple((each.name, each.oid) for each in columns)


class ClientSession:
    """The state of one client's session."""

    def __init__(self, asking: Asking, settings: SessionSettings, budget: Budget) -> None:
        self.settings = settings
        self.status = IDLE
        self.portals: dict[str, Portal] = {}
        self.prepared: dict[str, Prepared] = {}
        self._savepoints: list[str] = []
        self._cut: Pinned | None = None
        self._queried = False
        self._asking = asking
        self.budget = budget

    def prepare(self, name: str, statement: SessionStatement, oids: tuple[int, ...]) -> None:
        """Keep a prepared statement, in the place of one of that name. Raises Refusal: the server keeps too much."""
        self.forget(name)
        self.budget.hold(len(statement.text))
        self.prepared[name] = Prepared(statement, oids)

    def forget(self, name: str) -> None:
        """Let go of a prepared statement; one that is not there is gone already."""
        known = self.prepared.pop(name, None)
        if known is not None:
            self.budget.release(len(known.statement.text))

    def bind(self, name: str, portal: Portal) -> None:
        """Keep a portal, in the place of one of that name. Raises Refusal: the server keeps too much."""
        self.close_portal(name)
        self.budget.hold(portal.size)
        self.portals[name] = portal

    def cancel(self) -> None:
        """End the query that runs, if one does."""
        self._asking.cancel()

    def failed(self) -> None:
        """Note an error: a transaction that has one does nothing more."""
        if self.status == IN_TRANSACTION:
            self.status = FAILED

    def end_of_message(self) -> None:
        """Outside of a transaction every message is one by itself, and its portals end with it."""
        if self.status == IDLE:
            self._end_portals()

    def close(self) -> None:
        """Let go of everything."""
        self.cancel()
        self._unpin()
        for name in list(self.portals):
            self.close_portal(name)
        for name in list(self.prepared):
            self.forget(name)

    def close_portal(self, name: str) -> None:
        """Let go of a portal; one that is not there is gone already."""
        portal = self.portals.pop(name, None)
        if portal is not None:
            self.budget.release(portal.size)
            if portal.result is not None:
                portal.result.close()

    async def result_of(self, portal: Portal) -> Result:
        """The result of a portal, which runs now unless it has.

        Raises:
            Refusal: its columns are not those that the client was told of the prepared statement.
            StrandlineError: as of `run`.
        """
        if portal.result is None:
            result = await self.run(portal.statement, portal.parameters)
            if portal.told is not None and result.columns is not None and told_of(result.columns) != portal.told:
                result.close()
                self._asking.describe_anew()
                # In PostgreSQL's words: drivers know them, and prepare the statement again by themselves.
                message, hint = "cached plan must not change result type", "prepare the statement again"
                raise Refusal(SqlState.NOT_SUPPORTED, message, hint=hint, routine="RevalidateCachedQuery")
            portal.result = result
        else:
            self._asking.token()  # the rows were computed when it was still valid
        return portal.result

    async def run(self, statement: SessionStatement, parameters: Values = ()) -> Result:
        """Run a statement.

        Raises:
            StrandlineError: it failed, or the transaction has before it.
        """
        if self.status == FAILED and not isinstance(statement.command, End | Back):
            raise Refusal(
                SqlState.FAILED_TRANSACTION,
                "the transaction has failed: nothing runs until it ends",
                hint="send ROLLBACK",
            )
        match statement.command:
            case Query():
                return await self._rows(statement.text, parameters)
            case Declare():
                return await self._declare(statement, parameters)
            case Copy(query, _, form):
                found = await self._rows(query, ())
                return replace(found, tag="COPY", copy=form)
            case Fetch(name, count, move):
                return self._fetch(await self._cursor(name), count, move)
            case Begin() | Isolation() | End() | Savepoint() | Back():
                return self._transaction(statement.command)
            case _:
                return self._set(statement)

    async def describe(self, statement: SessionStatement, oids: tuple[int, ...]) -> Described | None:
        """What a statement takes and gives; None when it has no rows that are known before it runs."""
        match statement.command:
            case Query():
                return await self._asking.types(statement.text, oids, self.settings)
            case ShowSetting():
                result = await self.run(statement)
            case Fetch(name):
                result = await self._cursor(name)
            case _:
                return None
        columns = result.columns or ()
        return Described((), tuple(each.name for each in columns), tuple(each.type for each in columns))

    async def _rows(self, text: str, parameters: Values) -> Result:
        import pyarrow as pa

        if self._cut is None and self.status == IN_TRANSACTION and self._pins():
            self._cut = await self._asking.pin()
        self._queried = True
        found = await self._asking.rows(text, parameters, self.settings, self._cut)
        told = self.settings.note(found, self._asking.lag(found))
        columns = columns_of(found.names, found.types)
        if isinstance(found, Keyed):
            return Result("SELECT", columns, FewRows(found.tuples(), found.types), told={VERSIONS: told})
        result = Result("SELECT", columns, pa.ipc.open_stream(found.body).read_all())
        if found.versions:
            result.told[VERSIONS] = told
        return result.held(len(found.body), self.budget)

    async def _declare(self, statement: SessionStatement, parameters: Values) -> Result:
        command = statement.command
        assert isinstance(command, Declare)
        if self.status == IDLE and not command.hold:
            hint = "send BEGIN first, or declare it WITH HOLD"
            raise Refusal(SqlState.NO_TRANSACTION, "a cursor lives in a transaction, and there is none", hint=hint)
        if command.name in self.portals:
            raise Refusal(SqlState.CURSOR_TAKEN, f"there is a cursor '{command.name}' already", hint="CLOSE ends it")
        rows = await self._rows(command.query, parameters)
        self.portals[command.name] = Portal(statement, result=rows, hold=command.hold)
        return Result("DECLARE CURSOR", told=rows.told)

    def _fetch(self, cursor: Result, count: int | None, move: bool) -> Result:
        self._asking.token()  # the rows were computed when it was still valid
        taken = cursor.take(count)
        return Result(f"MOVE {taken.num_rows}") if move else Result("FETCH", cursor.columns, taken)

    async def _cursor(self, name: str) -> Result:
        """The result of a cursor; a portal that was bound in the protocol is one, and runs when it is asked."""
        portal = self._portal(name)
        return await self.result_of(portal)

    def _portal(self, name: str) -> Portal:
        portal = self.portals.get(name)
        if portal is None or not isinstance(portal.statement.command, Query | Declare):
            raise Refusal(SqlState.UNKNOWN_CURSOR, f"there is no cursor '{name}'", hint="DECLARE makes one")
        return portal

    def _pins(self) -> bool:
        """True if the transaction reads one cut."""
        return self.settings.show(ISOLATION)[1] in _PINNING

    def _isolate(self, command: Isolation) -> Result:
        if command.session:
            self.settings.set(DEFAULT_ISOLATION, command.level)
            return Result("SET")
        if self.status == IDLE:
            return Result("SET", warnings=("SET TRANSACTION means something inside a transaction only",))
        if self._queried and command.level != self.settings.show(ISOLATION)[1]:
            message, hint = "the isolation level is set before the first query", "send it right after BEGIN"
            raise Refusal(SqlState.IN_TRANSACTION, message, hint=hint)
        self.settings.set(ISOLATION, command.level)
        return Result("SET")

    def _unpin(self) -> None:
        """Hold the transaction's cut no more."""
        if self._cut is not None:
            self._asking.unpin(self._cut)
        self._cut, self._queried = None, False
        self.settings.set(ISOLATION, self.settings.show(DEFAULT_ISOLATION)[1])

    def _transaction(self, command: Begin | Isolation | End | Savepoint | Back) -> Result:
        match command:
            case Begin(isolation):
                if self.status == IDLE:
                    self._unpin()
                    if isolation:
                        self.settings.set(ISOLATION, isolation)
                self.status = IN_TRANSACTION
                return Result("BEGIN")
            case Isolation():
                return self._isolate(command)
            case End(commit):
                kept = commit and self.status != FAILED
                outside = ("there is no transaction",) if self.status == IDLE else ()
                self.status = IDLE
                self._unpin()
                self._savepoints.clear()
                self._end_portals()
                return Result("COMMIT" if kept else "ROLLBACK", warnings=outside)
            case Savepoint(name):
                if self.status == IDLE:
                    raise Refusal(SqlState.NO_TRANSACTION, "there is no transaction", hint="send BEGIN first")
                self._savepoints.append(name)
                return Result("SAVEPOINT")
            case Back(name, release):
                return self._back(name, release)

    def _back(self, name: str, release: bool) -> Result:
        if name not in self._savepoints or (release and self.status == FAILED):
            raise Refusal(SqlState.UNKNOWN_SAVEPOINT, f"there is no savepoint '{name}' to go back to")
        while self._savepoints[-1] != name:
            self._savepoints.pop()
        if release:
            self._savepoints.pop()
            return Result("RELEASE")
        self.status = IN_TRANSACTION
        return Result("ROLLBACK")

    def _set(self, statement: SessionStatement) -> Result:
        match statement.command:
            case Set(name, value):
                warning = self.settings.set(name, value)
                return Result("SET", warnings=(warning,) if warning else ())
            case Reset(name):
                self.settings.reset(name)
                return Result("RESET")
            case ShowSetting(name):
                return self._show(name)
            case Close(name):
                return self._close(name)
            case Deallocate(name):
                for each in list(self.prepared) if name is None else (name,):
                    self.forget(each)
                return Result("DEALLOCATE" if name else "DEALLOCATE ALL")
            case Done(tag):
                return Result(tag)
            case other:
                raise AssertionError(other)

    def _show(self, name: str | None) -> Result:
        if name is None:
            rows = [(each, value, "") for each, value in sorted(self.settings.all().items())]
            return Result.of_texts("SHOW", ("name", "setting", "description"), rows)
        spelt, value = self.settings.show(name)
        return Result.of_texts("SHOW", (spelt,), [(value,)])

    def _close(self, name: str | None) -> Result:
        if name is None:
            for each in list(self.portals):
                self.close_portal(each)
            return Result("CLOSE CURSOR ALL")
        self._portal(name)
        self.close_portal(name)
        return Result("CLOSE CURSOR")

    def _end_portals(self) -> None:
        for name in [name for name, portal in self.portals.items() if not portal.hold]:
            self.close_portal(name)
