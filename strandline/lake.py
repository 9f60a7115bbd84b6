"""A lake as Python code sees it: its definitions, their rows as frames, and the runs that refresh them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline import arguments
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.settings import load_settings
from strandline.state_store.delta import reader
from strandline.state_store.errors import ArgumentRefused, ObjectMissing, SettingsError, StrandlineError, VersionGone
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from strandline.jobs.model.report import RunReport
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.pull import Answer
    from strandline.jobs.session.apply import Applied, ApplyPlan
    from strandline.jobs.session.python_views import PythonView
    from strandline.jobs.sql.syntax import Select


def open_lake(path: str | Path | None = None, **settings: object) -> Lake:
    """Open a lake.

    Args:
        path: a folder or URL; default: the setting `lake` of the environment or `strandline.toml`.
        settings: others, by the names of docs/settings.md: `engine="duckdb"`.

    Raises:
        SettingsError: a setting is unknown or wrong.
        ArgumentRefused: the path is no path, or is said twice. So does every method below that is called with something
            of a kind that it does not take.
    """
    if path is not None:
        arguments.checked(path, (str, Path), "the path of a lake", "name a folder, as text, or a URL")
        if "lake" in settings:
            raise ArgumentRefused("the path of a lake is said twice", hint="leave out `lake=`")
    return Lake(load_settings(**({} if path is None else {"lake": path}), **settings))


class Lake:
    """One lake. It holds settings and no state: each call sees what is in the lake then."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._layout = LakeLayout(settings.lake)

    # --- reading --------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The streams, tables and views, in the order of their creation."""
        return Catalog(self._layout).relations()

    def plain_views(self) -> tuple[str, ...]:
        """The plain views, which have no rows of their own: what reads one has its query in its place."""
        return tuple(Catalog(self._layout).plain)

    def describe(self, name: str) -> dict[str, Any]:
        """What DESCRIBE says of a stream, table, view or plain view: kind, pipeline, columns. Raises UnknownName."""
        from strandline.jobs.session.show import description

        arguments.check_name(name)
        catalog = Catalog(self._layout)
        return description(catalog.name_map.stored(name), catalog, self._layout, extended=False).data

    def version(self, name: str) -> int | None:
        """The newest version of a table; None before its first commit. Raises UnknownName."""
        head = reader.head(self._layout.table(self._definition(name).name))
        return head.version if head else None

    def arrow(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        version: int | None = None,
        where: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    ) -> pa.Table:
        """The visible rows of a stream, table or view, in no order; deleted rows and the kept state are not among them.

        Args:
            columns: default: the declared ones.
            version: default: the newest.
            where: {column: the values it may have}, whole numbers or text; files that hold none are not read.

        Raises:
            UnknownName: there is no such definition, or column; nearest names proposed.
            TableMissing: it has no commit yet: its pipeline has not run.
            VersionGone: the version, or a file of it, is not there any more.
            CorruptState: a file is broken, or the rows are not those that were committed.
        """
        found = self._definition(name)
        arguments.check_columns(columns, found)
        arguments.check_version(version, name)
        arguments.check_where(where, found)
        declared = [column.name for column in found.columns]
        return reader.read_rows(self._layout.table(found.name), version, list(columns or declared), where)

    def pandas(self, name: str, columns: Sequence[str] | None = None, *, version: int | None = None) -> pd.DataFrame:
        """The rows as a pandas frame with Arrow's types, so that NULLs and DECIMALs stay what they are. As `arrow`."""
        import pandas as pd

        return self.arrow(name, columns, version=version).to_pandas(types_mapper=pd.ArrowDtype)

    def polars(self, name: str, columns: Sequence[str] | None = None, *, version: int | None = None) -> pl.DataFrame:
        """The rows as a polars frame. Arguments and errors as of `arrow`.

        Raises:
            SettingsError: polars is not installed.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise SettingsError("polars is not installed", hint="pip install 'strandline[polars]'") from error
        frame: pl.DataFrame = pl.from_arrow(self.arrow(name, columns, version=version))
        return frame

    def spark(
        self, name: str, session: SparkSession, columns: Sequence[str] | None = None, *, version: int | None = None
    ) -> DataFrame:
        """The rows as a Spark frame, read when the session reads it, at the version that is the newest now.

        Args:
            session: one with Delta: its own extension and catalog, or `delta.configure_spark_with_delta_pip`.

        Raises:
            UnknownName, TableMissing: as `arrow`.
        """
        found = self._definition(name)
        arguments.check_columns(columns, found)
        arguments.check_version(version, name)
        if not hasattr(session, "read"):
            raise arguments.refused(session, "the session", "give a SparkSession with Delta")
        declared = [column.name for column in found.columns]
        path = self._layout.table(found.name)
        at = reader.head(path) if version is None else reader.version_at(path, version)
        if at is None:
            raise ObjectMissing(f"'{name}' has no commit yet", where=str(path), hint="run its pipeline")
        frame = session.read.format("delta").option("versionAsOf", at.version).load(str(path))
        return frame.select(*(f"`{column}`" for column in columns or declared))

    def changes(self, name: str, after: int | None = None, upto: int | None = None) -> pa.Table:
        """The changes of the visible rows in the versions after `after`, up to and including `upto`.

        Args:
            after: a version that was read; None: from the beginning.
            upto: default: the newest.

        Returns:
            The declared columns, `_commit_version`, `_commit_timestamp`, and `__weight`: +1 for a row inserted, −1 for
            one retracted. A changed row is both. All of them from the beginning, added up, give the table.

        Raises:
            UnknownName, TableMissing, CorruptState: as `arrow`.
            VersionGone: the changes no longer reach back to `after`: read the table anew.
        """
        found = self._definition(name)
        arguments.check_version(after, name)
        arguments.check_version(upto, name)
        declared = [column.name for column in found.columns]
        path = self._layout.table(found.name)
        head = reader.head(path)
        if head is not None and after is not None and after > head.version:
            raise VersionGone(f"'{name}' has no version {after}", where=str(path), hint="read the table anew")
        changes = reader.read_changes(path, after, upto)
        return changes.select([*declared, "_commit_version", "_commit_timestamp", "__weight"])

    def query(self, text: str) -> list[dict[str, Any]]:
        """The rows of a SELECT over the lake, at one version of each table. Raises SqlError, with line and column."""
        from strandline.jobs.serve.results import python_rows

        found = self._answer(text)
        return [dict(zip(found.names, row, strict=True)) for row in python_rows(found.table, found.types)]

    def query_arrow(self, text: str) -> pa.Table:
        """The same as an Arrow table. Raises as `query`."""
        found = self._answer(text)
        return found.table.rename_columns(list(found.names))

    def columns(self, text: str) -> dict[str, str]:
        """The columns that the rows of a SELECT would have, with their types. Raises SqlError, as `query`."""
        from strandline.jobs.serve.pull import columns_of

        catalog = Catalog(self._layout)
        names, types = columns_of(_select(text, catalog), catalog, self._layout)
        return {name: str(each) for name, each in zip(names, types, strict=True)}

    # --- changing -------------------------------------------------------------------------------------------------

    def insert(self, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Append rows to the topic of a stream or table. A table keeps the newest row of each key.

        Args:
            rows: values by column; one that is left out is NULL. `rowtime` is the time of the event, now by default.

        Returns:
            The number of rows. The next run of the pipeline takes them in.

        Raises:
            UnknownName, InvalidQuery: it is no source that can be written.
            TypeMismatch, EncodeFailed: a value does not fit its column. Nothing was written.
            SourceUnavailable: the broker or registry does not answer.
        """
        from strandline.jobs.session.writes import append, source_named

        arguments.check_name(name)
        arguments.check_rows(rows)
        catalog = Catalog(self._layout)
        try:
            source = source_named(catalog.name_map.stored(name), catalog)
            return append(source, rows, self.settings, self._layout)
        except StrandlineError as error:
            raise catalog.name_map.localized_error(error)  # noqa: B904 - the same error

    def apply(self, what: str | Path | ModuleType | PythonView, *, pipeline: str | None = None) -> Applied:
        """Register definitions: all of them, or none. What is there as it is stays, a view that is not is replaced.

        Args:
            what: a `.sql` file, which is the pipeline named after it; a module with views (`strandline.views`), or one
                view.
            pipeline: of new views in Python; default: the name of their module.

        Raises:
            ArgumentRefused: there is no such file, or it is neither a module nor a view.
            SqlError: a definition is refused, with file, line and column; nothing was changed.
            SettingsError: Ibis, which views in Python need, is not installed.
            WriterBusy, EventsGone: of a view that would be replaced.
        """
        if isinstance(what, str | Path):
            from strandline.jobs.session.apply import apply

            arguments.check_file(Path(what))
            return apply(Path(what), self.settings)
        from strandline.jobs.session.python_views import apply_views

        _check_views(what, pipeline)
        return apply_views(what, self.settings, pipeline)

    def plan(self, what: str | Path | ModuleType | PythonView, *, pipeline: str | None = None) -> ApplyPlan:
        """What `apply` would do, to print; nothing is changed. Arguments and errors as of that."""
        if isinstance(what, str | Path):
            from strandline.jobs.session.apply import plan_apply

            arguments.check_file(Path(what))
            return plan_apply(Path(what), self.settings)
        from strandline.jobs.session.python_views import plan_views

        _check_views(what, pipeline)
        return plan_views(what, self.settings, pipeline)

    def execute(self, text: str, *, pipeline: str = "default") -> tuple[str, ...]:
        """Execute statements that change something, in order; those before an error stay executed.

        Args:
            pipeline: of new definitions.

        Returns:
            What each did, as the command prints it.

        Raises:
            StrandlineError: a statement failed, and changed nothing.
            InvalidQuery: one asks for something, and changes nothing.
        """
        from strandline.jobs.model.errors import InvalidQuery
        from strandline.jobs.serve.results import Message
        from strandline.jobs.session.interpreter import Interpreter

        arguments.check_text(text)
        arguments.check_pipeline(pipeline)
        said = []
        for result in Interpreter(self.settings, pipeline).run(text):
            if not isinstance(result, Message):
                raise InvalidQuery("`execute` is for what changes", hint="`query` reads rows, `describe` a definition")
            said.append(result.text)
        return tuple(said)

    def statement(self, view: PythonView) -> str:
        """The SQL that a view in Python stands for. Errors as of `apply`."""
        _check_views(view, None)
        return view.statement(Catalog(self._layout)).sql

    def drain(self, pipeline: str, session: SparkSession | None = None) -> RunReport:
        """Bring a pipeline up to what its topics hold now.

        Args:
            session: one to run in; without it, one is started when there are new events, and stopped.

        Raises:
            PipelineMissing, WriterBusy, ViewsStopped: as `strandline run`.
        """
        from strandline.jobs.run.pipeline import drain

        arguments.check_pipeline(pipeline)
        if session is not None and not hasattr(session, "sparkContext"):
            raise arguments.refused(session, "the session", "give a SparkSession with Delta, or none")
        return drain(self.settings, pipeline, session)

    def _answer(self, text: str) -> Answer:
        from strandline.jobs.functions.python import Library
        from strandline.jobs.partial.pull import answer
        from strandline.jobs.serve.pull import plan_pull

        catalog = Catalog(self._layout)
        library = Library(catalog.functions.values(), self.settings.functions.modules)
        plan = plan_pull(_select(text, catalog), catalog, self._layout)
        return answer(plan, catalog, self._layout, library)

    def _definition(self, name: str) -> Source | View:
        from strandline.jobs.model.errors import UnknownName

        arguments.check_name(name)
        catalog = Catalog(self._layout)
        found = catalog.get(catalog.name_map.stored(name))
        if isinstance(found, InsertQuery):
            raise UnknownName.among("stream, table or view", name, catalog.relations())
        return found


def _check_views(what: object, pipeline: str | None) -> None:
    """Check what should be views in Python, and their pipeline. Raises ArgumentRefused."""
    from types import ModuleType

    from strandline.jobs.session.python_views import PythonView

    hint = "give a .sql file, a module with views, or a function with @view before it"
    arguments.checked(what, (ModuleType, PythonView), "what should be definitions", hint)
    if pipeline is not None:
        arguments.check_pipeline(pipeline)


def _select(text: str, catalog: Catalog) -> Select:
    """The SELECT of a text, over the names that are stored. Raises SqlError: it is another statement, or none."""
    from strandline.jobs.catalog.stored_names import as_stored
    from strandline.jobs.model.errors import SqlSyntaxError
    from strandline.jobs.sql.statements import Select, parse_one

    arguments.check_text(text)
    statement = parse_one(text)
    if not isinstance(statement, Select) or statement.emit is not None:
        raise SqlSyntaxError("expected a SELECT without EMIT CHANGES", line=1, column=1)
    return as_stored(statement, catalog)
