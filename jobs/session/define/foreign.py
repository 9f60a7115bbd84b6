"""CREATE STREAM and CREATE TABLE over a table of others: what the statement leaves to the table, filled in.

    CREATE TABLE orders WITH (DELTA = 's3://shop/orders', KEY = 'id')
    -> columns and types from the table's newest version, START_VERSION = that version
    CREATE STREAM clicks WITH (ICEBERG = 'prod.web.clicks')
    -> the same, START_VERSION = the newest snapshot
    CREATE STREAM events WITH (PARQUET = 's3://landing/events')
    -> columns and types from the first file, and a new record of the files that are seen

What was filled in once stays: a statement that is applied again means the same, whatever the table is by then.

What reads tables of others is imported where one is named: EXPLAIN and DESCRIBE answer without Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from strandline.jobs.ingest.foreign.table import Origin, of_folder, origin_of
from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import FOREIGN_OPTIONS, RETENTION_OPTIONS, Column, Source
from strandline.jobs.model.errors import (
    DeltaVersionGone,
    ForeignMissing,
    NotSupported,
    OptionRefused,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.select_list import is_reserved
from strandline.jobs.session.define.options import SourceOptions, allowed, error, kept_rows, time_options
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.syntax import CreateSource, DeclaredColumn, Option
from strandline.state_store.delta import reader
from strandline.state_store.errors import SettingsError
from strandline.state_store.storage import disk_folder

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.foreign.data_files import Node
    from strandline.jobs.ingest.foreign.delta_table import ForeignDelta
    from strandline.jobs.ingest.foreign.iceberg import IcebergTable
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.storage import StorageOptions

_DELTA, _ICEBERG, _PARQUET = FOREIGN_OPTIONS
_START: Final = "START_VERSION"
_KEY: Final = "KEY"
_OWN_OPTIONS: Final = (_KEY, "TIMESTAMP", "TIMESTAMP_FORMAT", *RETENTION_OPTIONS)
_WHAT: Final[Mapping[str, str]] = {
    _DELTA: "a source over a Delta table",
    _ICEBERG: "a source over an Iceberg table",
    _PARQUET: "a source over a folder of Parquet files",
}

Nodes = dict[str, "Node"]
"""{column over there: what it is}."""


def is_foreign(statement: CreateSource) -> bool:
    """True if a statement declares a source over a table of others."""
    return any(each.name in FOREIGN_OPTIONS for each in statement.options)


def resolved(statement: CreateSource, catalog: Catalog, lake: LakeLayout, settings: Settings) -> CreateSource:
    """The statement with columns, and with the version that the source begins with; any other source as it is.

    Raises:
        DeltaMissing, DeltaUnsupported, DeltaVersionGone, ForeignMissing, ForeignUnsupported, ForeignVersionGone: the
            table cannot be read.
        NotSupported: a column has a type or a name that the language does not have.
        TypeMismatch, UnknownName: a declared column is not in the table, or has another type there.
        OptionRefused: an option has a wrong value.
    """
    places = [each for each in statement.options if each.name in FOREIGN_OPTIONS]
    if not places:
        return statement
    place = places[0]
    if len(places) > 1:
        raise error(OptionRefused, places[1], f"a source is over one table: {place.name}, or {places[1].name}")
    location = _absolute(place)
    found = None if statement.name in catalog.broken else catalog.find(statement.name)
    existing = found if isinstance(found, Source) and found.options.get(place.name) == location else None
    start = _option(statement, _START)
    if start is not None and not re.fullmatch(r"\d{1,19}", start.value):
        raise error(OptionRefused, start, f"{_START} is a version of the table, 0 or more, not '{start.value}'")
    columns = _keyed(statement)
    if existing is not None and not columns and _keys(statement) == existing.key:
        columns = declared(existing.columns, statement)
    known = existing.topic if existing is not None else _begun(statement, lake, place.name, location)
    origin = origin_of(known) if known is not None else None
    table = _Place(place.name, location, settings.storage.options())
    if not columns or existing is None:
        columns = _columns(replace(statement, columns=columns), table)
    others = tuple(each for each in statement.options if each.name not in (place.name, _KEY, _START))
    if place.name == _PARQUET:
        record = origin.record if origin is not None else uuid4().hex
        options = (replace(place, value=f"{location}@{record}"), *((start,) if start is not None else ()), *others)
    else:
        options = (replace(place, value=location), _started(statement, table, existing, origin), *others)
    return replace(statement, columns=columns, options=options)


_WITH_ROWS: Final = "@"
"""After the version of a stream that begins with the rows which are there."""
_NUMBER: Final = "/"
"""Between a snapshot of Iceberg and its sequence number, which is the version."""


def _started(statement: CreateSource, table: _Place, existing: Source | None, origin: Origin | None) -> Option:
    """START_VERSION, as it was said or with the version that it has been; else the newest one."""
    said = _option(statement, _START)
    # The rows that are there are part of the stream: only a version that was asked for leaves them out.
    with_rows = _WITH_ROWS if statement.kind == "stream" and said is None else ""
    if table.option == _DELTA:
        if said is not None:
            if existing is None and origin is None:
                _check_start(said, statement, table)
            return said
        version = str(origin.version if origin is not None and origin.snapshot else table.delta().head())
        return Option(_START, f"{version}{with_rows}")
    begun = existing.options.get(_START, "") if existing is not None else ""
    if origin is not None and begun and (begun == said.value if said is not None else origin.snapshot):
        first = origin.version if origin.snapshot else origin.version + 1
        return Option(_START, f"{begun}{_NUMBER}{first}{with_rows}")
    number, snapshot = table.iceberg().start_of(int(said.value) if said is not None else None)
    if said is None and origin is not None and origin.snapshot:  # the definition's file is lost: the rows say it
        number = origin.version
    place = said or Option(_START, "")
    return replace(place, value=f"{snapshot}{_NUMBER}{number}{with_rows}")


def _check_start(start: Option, statement: CreateSource, table: _Place) -> None:
    """Check that a new source over a Delta table can begin with the version that is said.

    Raises:
        OptionRefused: there is no such version yet; a stream may begin with the next one.
        DeltaVersionGone: the log does not reach back that far any more.
    """
    delta, version = table.delta(), int(start.value)
    head = delta.head()
    if version > head + (statement.kind == "stream"):
        raise error(
            OptionRefused,
            start,
            f"'{table.location}' has no version {version} yet: the newest is {head}",
            f"CREATE STREAM … WITH (…, {_START} = {head + 1}) begins with what is written next",
        )
    if version > head:
        return
    try:
        delta.schema(version)
    except DeltaVersionGone as gone:
        raise DeltaVersionGone(
            f"version {version} of '{table.location}' cannot be read any more: {gone.message}",
            hint=f"without {_START} it begins with version {head}, the newest",
        ) from gone


def foreign_options(statement: CreateSource, columns: tuple[Column, ...], options: Sequence[Option]) -> SourceOptions:
    """Check the options of a resolved statement, without those of ownership.

    Raises:
        OptionRefused, UnknownName: as of `source_options`.
    """
    (name,) = (each.name for each in options if each.name in FOREIGN_OPTIONS)
    starts = () if name == _PARQUET else (_START,)
    given = allowed(options, (name, *starts, *_OWN_OPTIONS), _WHAT[name])
    location, started = given[name].value, {}
    if name == _PARQUET:
        location, _, record = location.rpartition("@")
        origin = of_folder(location, record)
    else:
        text = given[_START].value
        with_rows = statement.kind == "table" or text.endswith(_WITH_ROWS)
        begun, _, number = text.removesuffix(_WITH_ROWS).partition(_NUMBER)
        version = int(number or begun)
        kind: Literal["delta", "iceberg"] = "delta" if name == _DELTA else "iceberg"
        origin = Origin(location, version if with_rows else version - 1, with_rows, kind)
        started = {_START: begun}
    timestamp, pattern = time_options(given, columns)
    return SourceOptions(
        topic=str(origin),
        key_format=name,
        value_format=name,
        timestamp=timestamp,
        timestamp_format=pattern,
        other={name: location, **started, **kept_rows(given)},
    )


class _Place:
    """A table of others that a statement names; it is opened when it is asked."""

    def __init__(self, option: str, location: str, storage: StorageOptions) -> None:
        self.option, self.location = option, location
        self._storage = storage

    def delta(self) -> ForeignDelta:
        from strandline.jobs.ingest.foreign.delta_versions import open_delta

        return open_delta(self.location, self._storage)

    def iceberg(self) -> IcebergTable:
        from strandline.jobs.ingest.foreign.iceberg import open_iceberg

        return open_iceberg(self.location, self._storage)

    def nodes(self) -> Nodes | None:
        """Its columns; None of a folder in which there is no file yet."""
        if self.option == _DELTA:
            table = self.delta()
            return {node.name: node for node in table.schema(table.head()).columns}
        if self.option == _ICEBERG:
            return {node.name: node for node in self.iceberg().columns}
        from strandline.jobs.ingest.foreign.parquet_folder import columns_of_folder, folder_at

        found = columns_of_folder(folder_at(self.location, self._storage))
        return None if found is None else {node.name: node for node in found}


def _option(statement: CreateSource, name: str) -> Option | None:
    return next((each for each in statement.options if each.name == name), None)


def _absolute(place: Option) -> str:
    """The path or URL that does not depend on where the command is started; of a catalog's table its name."""
    if place.name == _ICEBERG:
        from strandline.jobs.ingest.foreign.iceberg import is_named

        if is_named(place.value):
            return place.value
    try:
        folder = disk_folder(place.value)
    except SettingsError as refused:
        raise error(OptionRefused, place, f"{place.name} names no table: {refused.message}", refused.hint) from refused
    return str(folder) if folder is not None else place.value.rstrip("/")


def _keys(statement: CreateSource) -> tuple[str, ...]:
    """The columns that KEY names."""
    option = _option(statement, _KEY)
    return tuple(name.strip().lower() for name in option.value.split(",")) if option is not None else ()


def _keyed(statement: CreateSource) -> tuple[DeclaredColumn, ...]:
    """The declared columns, those that KEY names as the key.

    Raises:
        UnknownName: KEY names a column that is not declared.
        OptionRefused: another key is declared at the columns.
    """
    option, keys = _option(statement, _KEY), _keys(statement)
    if option is None or not statement.columns:
        return statement.columns
    names = {each.name for each in statement.columns}
    missing = next((name for name in keys if name not in names), None)
    if missing is not None:
        raise UnknownName.among("column", missing, names, line=option.line, column=option.column)
    keyed = {each.name for each in statement.columns if each.key is not None}
    if keyed and keyed != set(keys):
        what = f"the key is {', '.join(sorted(keyed))} by its columns, and {', '.join(keys)} by {_KEY}"
        raise error(OptionRefused, option, what, "declare it in one of the two places")
    word: Literal["PRIMARY KEY", "KEY"] = "PRIMARY KEY" if statement.kind == "table" else "KEY"
    return tuple(replace(each, key=word) if each.name in keys else each for each in statement.columns)


def _begun(statement: CreateSource, lake: LakeLayout, option: str, location: str) -> str | None:
    """The topic that the event log of a definition whose file is lost was read from."""
    log = statement.name if statement.kind == "stream" else tables.log_below(statement.name)
    head = reader.head(lake.table(log))
    known = head.record.offsets if head is not None else {}
    for topic in known:
        found = origin_of(topic)
        if found is not None and (found.kind.upper(), found.location) == (option, location):
            return topic
    return None


def declared(columns: Sequence[Column], statement: CreateSource) -> tuple[DeclaredColumn, ...]:
    """Columns that a statement left out, as it would have declared them."""
    word: Literal["PRIMARY KEY", "KEY"] = "PRIMARY KEY" if statement.kind == "table" else "KEY"
    line, place = statement.line, statement.column
    return tuple(
        DeclaredColumn(each.name, each.type, word if each.key else None, line, place, each.header, each.required)
        for each in columns
    )


def _columns(statement: CreateSource, table: _Place) -> tuple[DeclaredColumn, ...]:
    """The columns that a statement declares, checked against those of the table; or all of the table's."""
    nodes = table.nodes()
    if nodes is None:
        if statement.columns:
            return statement.columns
        raise ForeignMissing(
            f"there is no Parquet file in '{table.location}' yet, so there are no columns",
            hint=f"declare them: CREATE {statement.kind.upper()} {statement.name} (…) WITH (…); or put a file there",
        )
    if statement.columns:
        fits = _widens if table.option == _PARQUET else _is_same
        for column in statement.columns:
            _check_declared(column, nodes, table.location, fits)
        return statement.columns
    keys = _keys(statement)
    option = _option(statement, _KEY)
    for name in keys:
        if name not in nodes and option is not None:
            raise UnknownName.among("column", name, nodes, line=option.line, column=option.column)
    found = [Column(n.name, _readable(n, nodes, table.location, statement), n.name in keys) for n in nodes.values()]
    return declared(found, statement)


def _check_declared(column: DeclaredColumn, nodes: Nodes, where: str, fits: Callable[[Node, SqlType], bool]) -> None:
    node = nodes.get(column.name)
    if node is None:
        raise UnknownName.among("column", column.name, nodes, line=column.line, column=column.column)
    if not fits(node, column.type):
        raise TypeMismatch(
            f"column '{column.name}' is {node.type or node.said} in '{where}', not {column.type}",
            line=column.line,
            column=column.column,
            hint="leave the columns out: they are taken from the table",
        )


def _is_same(node: Node, wanted: SqlType) -> bool:
    return node.type == wanted


def _widens(node: Node, wanted: SqlType) -> bool:
    """True if a file's values are some of the type, or a folder's name says them, which is text."""
    import pyarrow as pa

    from strandline.jobs.ingest.foreign.data_files import PATH, as_type

    if node.said == PATH:
        return True
    try:
        return node.type is not None and as_type(pa.nulls(0, node.type.arrow()), wanted) is not None
    except Misfit:
        return False


def _readable(node: Node, nodes: Nodes, where: str, statement: CreateSource) -> SqlType:
    """The type of a column that the language can name and hold."""
    fits = [each for each in nodes.values() if each.type is not None and not _is_taken(each.name)]
    listed = ", ".join(f"{quote(each.name)} {each.type}" for each in fits)
    hint = f"name the columns to read: CREATE {statement.kind.upper()} {quote(statement.name)} ({listed}) WITH (…)"
    if node.type is None:
        what = f"column '{node.name}' of '{where}' is {node.said.upper()}, which the language does not have"
        raise NotSupported(what, line=statement.line, column=statement.column, hint=hint)
    if _is_taken(node.name):
        what = f"column '{node.name}' of '{where}' has a name that is reserved here"
        raise NotSupported(what, line=statement.line, column=statement.column, hint=hint)
    return node.type


def _is_taken(name: str) -> bool:
    return is_reserved(name) or name in WINDOW_BOUNDS
