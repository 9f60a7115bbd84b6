"""The questions of one client to the processes that answer queries: within its limits, until it cancels one."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from jobs.model.serving_errors import Unauthenticated
from jobs.serve.terms import Terms
from jobs.server.pg_catalog.contents import Caller
from jobs.server.pg_values.refusal import Refusal, SqlState
from jobs.server.postgres.failures import state_of
from jobs.server.postgres.question import Described, RowsAsked, TypesAsked
from jobs.server.queries.cancelling import Cancelling
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from jobs.server.access.tokens import Token
    from jobs.server.pg_values.parameters import Parameter
    from jobs.server.postgres.settings import Settings
    from jobs.server.queries.worker import Answered, Question
    from jobs.server.state.server import Server

A = TypeVar("A")

log = logging.getLogger("strandline.server")

_ROUTE: Final = "postgres"
_SUCCESS: Final = "00000"


@dataclass(frozen=True)
class Client:
    """Who is connected. `password` is the token's text: it is looked up for every query, so one that ends, ends."""

    user: str
    database: str
    password: str


class Asking:
    """The questions of one client, one at a time."""

    def __init__(self, server: Server, client: Client) -> None:
        self._server = server
        self._client = client
        self._running: Cancelling | None = None

    def cancel(self) -> None:
        """End the query that runs, if one does."""
        if self._running is not None:
            self._running.cancel()

    async def rows(self, text: str, parameters: tuple[Parameter, ...], settings: Settings) -> Answered:
        """The rows of a SELECT. Raises StrandlineError."""
        terms, token, caller = self._terms(settings), self._token(), self._caller(settings)
        return await self._ask(RowsAsked(text, parameters, terms, token, caller))

    async def types(self, text: str, oids: tuple[int, ...], settings: Settings) -> Described:
        """The types of a SELECT. Raises StrandlineError."""
        terms, token, caller = self._terms(settings), self._token(), self._caller(settings)
        return await self._ask(TypesAsked(text, oids, terms, token, caller))

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
            seconds = time.perf_counter() - begun
            self._server.metrics.seconds.labels(_ROUTE, state).observe(seconds)
            log.info("query", extra={"route": _ROUTE, "status": state, "ms": round(seconds * 1000, 2)})

    def _terms(self, settings: Settings) -> Terms:
        limits, wanted = self._server.options.limits, settings.timeout_seconds()
        if wanted is not None and (limits.seconds is None or wanted < limits.seconds):
            limits = replace(limits, seconds=wanted)
        return Terms(limits)

    def _token(self) -> Token:
        try:
            return self._server.token_of(f"Bearer {self._client.password}")
        except Unauthenticated as error:
            message, hint = "the token is not valid any more", "`strandline token` makes one"
            raise Refusal(SqlState.NOT_AUTHENTICATED, message, hint=hint, fatal=True) from error

    def _caller(self, settings: Settings) -> Caller:
        return Caller(self._client.database, self._client.user, settings.all())
