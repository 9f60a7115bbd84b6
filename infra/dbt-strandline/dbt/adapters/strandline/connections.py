"""dbt's connection: a lake, opened in this process, and the statements that dbt sends there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING

from dbt.adapters.base import BaseConnectionManager
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.clients.agate_helper import empty_table, table_from_data_flat
from dbt_common.exceptions import DbtDatabaseError

import strandline
from strandline.jobs.sql.statements import Select, parse

if TYPE_CHECKING:
    import agate

_ONE_AT_A_TIME = RLock()
"""A lake has one writer for each pipeline: dbt's threads take turns."""
_CLOCK = "clock"
"""The table of the lake's clock, and its pipeline."""
logger = AdapterLogger("Strandline")


@dataclass
class StrandlineCredentials(Credentials):
    """A target of profiles.yml.

    Attributes:
        schema: the pipeline of new models.
        database: a lake has none; the name stands in dbt's own lists.
        lake: a folder or URL; default: the one that Strandline's settings name.
        drain: bring a model up to date when it is applied. False: a run elsewhere does.
        clock: how often the time that passes is looked at, `1 HOUR`, for models that ask for CURRENT_DATE and its like:
            the lake gets a table `clock` (docs/sql.md). Without it such a model is refused, unless the lake has one.
    """

    database: str = "lake"
    schema: str = "dbt"
    lake: str | None = None
    drain: bool = True
    clock: str | None = None

    @property
    def type(self) -> str:
        return "strandline"

    @property
    def unique_field(self) -> str:
        return str(self.lake)

    def _connection_keys(self) -> tuple[str, ...]:
        return ("lake", "database", "schema", "drain", "clock")


class StrandlineConnectionManager(BaseConnectionManager):
    """Opens the lake, and sends statements there. There are no transactions: each statement is whole."""

    TYPE = "strandline"

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except strandline.StrandlineError as error:
            logger.debug(f"refused:\n{sql}")
            raise DbtDatabaseError(str(error)) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state != ConnectionState.OPEN:
            credentials = connection.credentials
            assert isinstance(credentials, StrandlineCredentials)
            connection.handle = strandline.open_lake(credentials.lake)
            if credentials.clock:
                _set_clock(connection.handle, credentials.clock)
            connection.state = ConnectionState.OPEN
        return connection

    @classmethod
    def close(cls, connection: Connection) -> Connection:
        connection.state = ConnectionState.CLOSED
        connection.transaction_open = False
        return connection

    def cancel_open(self) -> list[str]:
        return []

    def begin(self) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Do nothing."""

    def clear_transaction(self) -> None:
        """Do nothing."""

    @property
    def lake(self) -> strandline.Lake:
        """The lake of this thread's connection."""
        handle = self.get_thread_connection().handle
        assert isinstance(handle, strandline.Lake)
        return handle

    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        """Execute statements, or one SELECT, whose rows come back with `fetch`.

        `dbt debug` and hooks may ask without it, and `run_query` sends any statement with it.
        """
        with self.exception_handler(sql):
            if not _is_select(sql):
                return AdapterResponse(self.apply(sql)), empty_table()
            if not fetch:
                return AdapterResponse(f"SELECT {len(self.lake.query(sql))}"), empty_table()
            rows = self.lake.query(sql)[:limit]
            table = table_from_data_flat(rows, list(rows[0] if rows else self.lake.columns(sql)))
            return AdapterResponse(f"SELECT {len(rows)}", rows_affected=len(rows)), table

    def apply(self, sql: str, pipeline: str | None = None) -> str:
        """Execute statements; what each did, in words.

        Args:
            pipeline: of new definitions; default: the profile's schema.
        """
        schema = str(self.get_thread_connection().credentials.schema)
        with _ONE_AT_A_TIME:
            return "; ".join(self.lake.execute(sql, pipeline=pipeline or schema))

    def rehearse(self, sql: str) -> None:
        """Check statements against the lake, which stays as it is. Raises SqlError."""
        with TemporaryDirectory(prefix="strandline-") as folder:
            file = Path(folder) / "model.sql"
            file.write_text(sql)
            try:
                self.lake.plan(file)
            except strandline.StrandlineError as error:
                error.where = (error.where or "").removeprefix(f"{file}, ") or None
                raise

    def drain(self, name: str) -> bool:
        """Bring a definition up to what the topics hold, with the pipelines of all that it reads, unless the profile
        leaves that to others (False). A pipeline below its own that runs elsewhere is left to its run."""
        credentials = self.get_thread_connection().credentials
        assert isinstance(credentials, StrandlineCredentials)
        if not credentials.drain:
            return False
        with self.exception_handler(f"drain of {name}"), _ONE_AT_A_TIME:
            *below, own = _pipelines(name, self.lake)
            self._drain(below)
            self.lake.drain(own)
        return True

    def drain_own(self, name: str) -> None:
        """Bring a definition's own pipeline up to date.

        Raises:
            DbtDatabaseError: it runs elsewhere.
        """
        with self.exception_handler(f"drain of {name}"), _ONE_AT_A_TIME:
            pipeline = self.lake.describe(name)["pipeline"]
            try:
                self.lake.drain(pipeline)
            except strandline.StrandlineError as error:
                if error.code != "store.writer_busy":
                    raise
                raise DbtDatabaseError(
                    f"{name} is in the pipeline '{pipeline}', which runs elsewhere: nobody waits for that run here. "
                    f"Give it a schema of its own (config(schema='…'))"
                ) from error

    def drain_below(self, names: Iterable[str]) -> None:
        """Bring what a snapshot reads up to date, as `drain` does it; what runs elsewhere is left to its run."""
        credentials = self.get_thread_connection().credentials
        assert isinstance(credentials, StrandlineCredentials)
        if credentials.drain:
            with self.exception_handler(f"drain of {', '.join(names)}"), _ONE_AT_A_TIME:
                found = dict.fromkeys(pipeline for name in names for pipeline in _pipelines(name, self.lake))
                self._drain(found)

    def _drain(self, pipelines: Iterable[str]) -> None:
        for pipeline in pipelines:
            try:
                self.lake.drain(pipeline)
            except strandline.StrandlineError as error:
                if error.code != "store.writer_busy":
                    raise
                logger.info(f"pipeline {pipeline} is left to its own run: {error.message}")


def _is_select(sql: str) -> bool:
    """True if a text is one SELECT. Raises SqlError."""
    statements = parse(sql)
    return len(statements) == 1 and isinstance(statements[0], Select)


def _set_clock(lake: strandline.Lake, every: str) -> None:
    """Give the lake a clock, unless it has one."""
    with _ONE_AT_A_TIME:
        if _CLOCK not in lake.names():
            tick = every.replace("'", "''")
            text = f"CREATE TABLE {_CLOCK} (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '{tick}')"
            lake.execute(text, pipeline=_CLOCK)


def _pipelines(name: str, lake: strandline.Lake) -> list[str]:
    """The pipelines of all that a definition reads, each once, then its own."""
    about = lake.describe(name)
    below = [pipeline for each in about.get("reads", ()) for pipeline in _pipelines(each, lake)]
    own = about["pipeline"]
    return [*dict.fromkeys(each for each in below if each != own), own]
