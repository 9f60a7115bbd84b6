"""The process that answers queries: one at a time, until its pipe is closed.

A single call of a function cannot be interrupted: LPAD to 2 GB ran for 112 s and took 4 GB in DuckDB 2.0, whatever its
memory limit. So a query runs where it can be killed, and under a limit of the operating system.
"""

from __future__ import annotations

import io
import logging
import os
import resource
import signal
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from strandline.jobs.catalog.stored_names import as_stored
from strandline.jobs.functions.python import Library
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.partial.pull import answer
from strandline.jobs.serve.catalogued import Catalogued, names_read
from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, Reach
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.pull import Answer, columns_of, plan_pull
from strandline.jobs.serve.query_engine import QueryDatabase
from strandline.jobs.serve.results import array_texts, object_texts
from strandline.jobs.sql.size import too_deep
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Explain, Select
from strandline.state_store.errors import InternalError, StrandlineError
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.pull import PlannedPull
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.server.state.access import Token

log = logging.getLogger("strandline.server")

Form = Literal["objects", "ksql", "arrow"]
"""A body: JSON objects joined by commas, JSON arrays on lines of their own under ksqlDB's names, or an Arrow stream."""

_NICER = 5
_PLAN = "plan"
"""The column of an EXPLAIN's answer."""
_KEPT_LETTERS: Final = 100_000
"""Of all texts whose plans are kept: 570 bytes a letter, so 57 MB, and some hundred of what dashboards send."""
_BESIDE_BYTES = 3 << 30
"""What the process has beside a query's own memory: its libraries, and the answer in two forms."""


_LATE_IMPORTS: Final = (
    *("duckdb", "duckdb.func", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet"),
    *(
        "strandline.state_store.delta.checkpoint",
        "strandline.state_store.delta.rows",
        "strandline.state_store.tablespec",
        "strandline.state_store.storage_disk",
    ),
)
"""Measured: 0.7 s of a core, 2.5 s on a busy machine."""


A_co = TypeVar("A_co", covariant=True)


class Question(Protocol[A_co]):
    """What is sent to the process: a value that knows its own answer."""

    @property
    def terms(self) -> Terms:
        """What it may take."""

    def answered(self, shared: Shared) -> A_co:
        """The answer, made in the process. Raises StrandlineError."""


class Plans:
    """The plans of the texts that were asked last, over one catalog: a dashboard asks the same ones again and again.

    To parse, read and plan a GROUP BY takes as long as to compute it over a thousand rows (docs/design/0013).
    """

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._letters = 0
        self._kept: OrderedDict[tuple[str, Unnamed], tuple[list[str], PlannedPull]] = OrderedDict()

    def find(self, asked: QueryRequest, catalog: Catalog) -> PlannedPull | None:
        """The plan of a text that was asked before, if the token allows it. Raises Forbidden if not."""
        if catalog is not self._catalog:
            self._catalog, self._letters = catalog, 0
            self._kept.clear()
        place = (asked.text, asked.terms.unnamed)
        known = self._kept.get(place)
        if known is None:
            return None
        self._kept.move_to_end(place)
        require_read(known[0], asked.token, catalog)
        return known[1]

    def keep(self, asked: QueryRequest, names: list[str], plan: PlannedPull) -> None:
        """Keep a plan over the catalog that was asked for last.

        Args:
            names: of what the text reads.
        """
        if not plan.lasts:
            return
        self._kept[asked.text, asked.terms.unnamed] = (names, plan)
        self._letters += len(asked.text)
        while self._letters > _KEPT_LETTERS:
            (text, _), _ = self._kept.popitem(last=False)
            self._letters -= len(text)


@dataclass(frozen=True)
class Shared:
    """What the questions of one process share."""

    settings: Settings
    catalogued: Catalogued
    database: QueryDatabase
    plans: Plans = field(default_factory=Plans)

    @classmethod
    def of(cls, settings: Settings, memory_bytes: int | None = None) -> Shared:
        """For questions about one lake; `memory_bytes` is the most that one computes with."""
        return cls(settings, Catalogued(LakeLayout(settings.lake), look_seconds=0), QueryDatabase(memory_bytes))

    @property
    def lake(self) -> LakeLayout:
        """The lake that is asked."""
        return LakeLayout(self.settings.lake)

    def library(self, catalog: Catalog) -> Library:
        """The functions that users wrote."""
        return Library(catalog.functions.values(), self.settings.functions.modules)


@dataclass(frozen=True)
class QueryRequest:
    """One query, as it is sent to the process. `token` is whose it is, `form` that of the answer's body."""

    text: str
    terms: Terms
    token: Token
    form: Form

    def answered(self, shared: Shared) -> Answered:
        """The answer; errors as of `answered`."""
        return answered(self, shared.catalogued.catalog, shared)


@dataclass(frozen=True)
class Failed:
    """An error as it comes back: its class, and its attributes that are plain values."""

    type: type[StrandlineError]
    about: dict[str, object]

    @classmethod
    def of(cls, error: StrandlineError) -> Failed:
        """What is sent of an error."""
        plain = (str, int, type(None))
        return cls(type(error), {name: each for name, each in vars(error).items() if isinstance(each, plain)})

    def error(self) -> StrandlineError:
        """The error that the process met, without where it was unless that is a place in the query's own text."""
        # Not called: each class takes arguments of its own, and these are what it made of them.
        error = self.type.__new__(self.type, self.about["message"])
        vars(error).update(self.about)
        if not isinstance(error, SqlError):
            error.where = None
        return error


@dataclass(frozen=True)
class Answered:
    """One answer, as it comes back: the rows in the form that was asked for.

    Attributes:
        offsets: of the topics that it is made of, which it reflects; None: a table is not there.
    """

    names: tuple[str, ...]
    types: tuple[t.SqlType, ...]
    body: bytes
    versions: dict[str, int]
    committed: int | None
    event_time: int | None
    offsets: Mapping[str, Reach] | None = None


def serve(pipe: Connection, settings: Settings, memory_bytes: int | None) -> None:
    """Say once that it is ready, then answer questions, by the answer or `Failed`, until the other end is closed."""
    # Ctrl-C in a terminal goes to all its processes: the server ends this one when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The process that all share answers look-ups first, whatever queries do to the machine's cores.
    os.nice(_NICER)
    if memory_bytes is not None:
        most = memory_bytes * 2 + _BESIDE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    load()
    shared = Shared.of(settings, memory_bytes)
    with shared.database:
        pipe.send(None)
        while True:
            try:
                asked: Question[object] = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(asked.answered(shared))
            except StrandlineError as error:
                pipe.send(Failed.of(error))
            except RecursionError:
                pipe.send(Failed.of(too_deep(1, 1)))
            except MemoryError:
                raise  # what is left of the process is not to be trusted with the next query
            except Exception:
                # The process is as good as before. Would it end, the query were taken for one that needs too much.
                log.exception("a query met a fault of Strandline's")
                hint = "the server's log has the details; report it with the query"
                pipe.send(Failed.of(InternalError("the query met a fault of Strandline's own", hint=hint)))


def load() -> None:
    """Import what the modules above import when they are first called: a query's time is not for that."""
    for name in _LATE_IMPORTS:
        import_module(name)


def answered(asked: QueryRequest, catalog: Catalog, shared: Shared) -> Answered:
    """The answer to one query, over the definitions as they were read.

    Raises:
        StrandlineError: as of `jobs.serve.pull.answer`; Forbidden, RequestRefused: it is none that may be asked.
    """
    with _as_called(catalog):
        plan = shared.plans.find(asked, catalog)
        if plan is None:
            statement, names = _asked(asked.text, asked.token, catalog)
            if isinstance(statement, Explain):
                return _explained(statement, catalog, asked.form)
            plan = plan_pull(statement, catalog, shared.lake, asked.terms.unnamed)
            shared.plans.keep(asked, names, plan)
        found = answer(plan, catalog, shared.lake, shared.library(catalog), asked.terms, shared.database)
    body, cut = _BODIES[asked.form](found), found.cut
    versions = {catalog.name_map.of(table): version for table, version in cut.versions.items()}
    return Answered(found.names, found.types, body, versions, cut.committed, cut.event_time, cut.offsets)


def columns(asked: QueryRequest, catalog: Catalog, lake: LakeLayout) -> tuple[tuple[str, ...], tuple[t.SqlType, ...]]:
    """The names and types of the columns that the answer would have; nothing is read. Errors as of `answered`."""
    with _as_called(catalog):
        statement, _ = _asked(asked.text, asked.token, catalog)
        return ((_PLAN,), (t.VARCHAR,)) if isinstance(statement, Explain) else columns_of(statement, catalog, lake)


@contextmanager
def _as_called(catalog: Catalog) -> Iterator[None]:
    """Errors about definitions as they are called."""
    try:
        yield
    except StrandlineError as error:
        raise catalog.name_map.localized_error(error)  # noqa: B904 - the same error


def _explained(statement: Explain, catalog: Catalog, form: Form) -> Answered:
    """The plan, a row for each of its lines: it reads no table, so it has no version."""
    import pyarrow as pa

    # The planner is most of the engine: a process that only answers SELECTs does without it.
    from strandline.jobs.ivm.explain import explain

    lines = explain(statement, catalog).splitlines()
    found = Answer((_PLAN,), (t.VARCHAR,), pa.table({_PLAN: lines}), ConsistentSnapshot({}))
    return Answered(found.names, found.types, _BODIES[form](found), {}, None, None, {})


def _asked(text: str, token: Token, catalog: Catalog) -> tuple[Select | Explain, list[str]]:
    """The one statement of a text, over the names that are stored, after it is known that the token allows it; and the
    names of what it reads."""
    statements = parse(text)
    if len(statements) == 1:
        (statement,) = statements
        if isinstance(statement, Explain) or (isinstance(statement, Select) and statement.emit is None):
            found = as_stored(statement, catalog)
            names = [str(found.name)] if found.query is None else list(names_read(found.query, catalog))
            require_read(names, token, catalog)
            return found, names
    raise RequestRefused(
        "the text is not one SELECT that ends, nor one EXPLAIN",
        hint="changes are at GET /v1/views/{view}/changes, inserts at POST /v1/streams/{stream}",
    )


def require_read(names: Iterable[str], token: Token, catalog: Catalog) -> None:
    """Raise Forbidden unless a token may read all that is stored under these names."""
    for name in names:
        token.require("read", *catalog.name_map.scopes_of(name))


def _objects(found: Answer) -> bytes:
    return b", ".join(object_texts(found.table, found.types, found.names))


def _arrays(found: Answer) -> bytes:
    return b"\n".join(array_texts(found.table, found.types))


def arrow_stream(found: Answer) -> bytes:
    """The rows as an Arrow stream, its columns by the answer's names."""
    import pyarrow as pa

    sink = io.BytesIO()
    table = found.table.rename_columns(list(found.names))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


_BODIES: Final = {"objects": _objects, "ksql": _arrays, "arrow": arrow_stream}
