"""A server over the lake of one case, which the runner feeds and refreshes by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import tables
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.consistent_snapshot import Pinned
from strandline.jobs.serve.terms import Least, QueryLimits, Terms
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, Token
from strandline.jobs.server.state.pool import Queries
from strandline.jobs.server.state.server import Server
from strandline.jobs.server.state.worker import Answered, Form, QueryRequest, Shared
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.conformance.decode_inputs import InputDecoder
from tests.conformance.program import PIPELINE, Program
from tests.support.event_commits import commit_events
from tests.support.server_of import server_of

_LIMITS = QueryLimits(seconds=30.0)


class _Here(Queries):
    """Answers queries in this process: to start one for each case would take longer than all else together."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _LIMITS, 0)
        self._own = settings

    def ask(
        self,
        text: str,
        token: Token,
        *,
        form: Form,
        at_least: Mapping[str, Least] | None = None,
        pinned: Pinned | None = None,
    ) -> Answered:
        asked = QueryRequest(text, Terms(_LIMITS, at_least or {}, pinned=pinned), token, form)
        shared = Shared.of(self._own, _LIMITS.memory_bytes)
        with shared.database:
            return asked.answered(shared)


@dataclass
class FedServer:
    """A client of the server, and the way to feed its lake."""

    client: TestClient
    program: Program
    inputs: InputDecoder
    duckdb_engine: DuckDBEngine

    @property
    def server(self) -> Server:
        """The server itself."""
        return server_of(self.client)

    def feed(self, records: Sequence[dict[str, Any]]) -> None:
        """Take in records, and refresh all views: one epoch."""
        fed = self.inputs.rows(records)
        lake, catalog = self.program.lake, self.program.catalog
        for source in self.program.sources:
            rows = fed.get(tables.event_log(source))
            if rows:
                commit_events(lake, source, rows)
        context = RunContext(None, lake, f"{PIPELINE}/1", duckdb_engine=self.duckdb_engine)
        failures = refresh_all(context, maintained(catalog.pipeline(PIPELINE), catalog), frozenset()).failures
        for error in failures.values():
            raise error


@contextmanager
def fed_server(program: Program, folder: Path, duckdb_engine: DuckDBEngine) -> Iterator[FedServer]:
    """A server over the program's lake, for the duration of the block."""
    assert isinstance(program.lake, LakeLayout)
    settings = load_settings(lake=program.lake.root)
    app = application(settings, ServerOptions(folder, limits=_LIMITS, queries=0))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        server_of(client).queries = _Here(settings)
        yield FedServer(client, program, InputDecoder(program), duckdb_engine)
