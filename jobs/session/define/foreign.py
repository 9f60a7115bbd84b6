"""CREATE STREAM and CREATE TABLE over a Delta table of others: what the statement leaves to the table, filled in.

    CREATE TABLE orders WITH (DELTA = 's3://shop/orders', KEY = 'id')
    -> columns and types from the table's newest version, START_VERSION = that version

What was filled in once stays: a statement that is applied again means the same, whatever the table is by then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.ingest.delta.origin import Origin, origin_of
from strandline.jobs.ingest.formats.format import ROWS
from strandline.jobs.ingest.logs.delta_log import open_table
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import NotSupported, OptionRefused, TypeMismatch, UnknownName
from strandline.jobs.model.options import RETENTION_OPTIONS
from strandline.jobs.model.relation import WINDOW_BOUNDS
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.select_list import is_reserved
from strandline.jobs.session.define.allowed_options import allowed, error
from strandline.jobs.session.define.options import SourceOptions, kept_rows, time_options
from strandline.jobs.sql.syntax import CreateSource, DeclaredColumn, Option
from strandline.state_store.delta import reader
from strandline.state_store.errors import SettingsError
from strandline.state_store.storage.open import disk_folder

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.delta.columns import Node
    from strandline.jobs.ingest.delta.table import ForeignTable
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

DELTA: Final = "DELTA"
_START: Final = "START_VERSION"
_KEY: Final = "KEY"
_OWN_OPTIONS: Final = (DELTA, _START, _KEY, "TIMESTAMP", "TIMESTAMP_FORMAT", *RETENTION_OPTIONS)


def is_foreign(statement: CreateSource) -> bool:
    """True if a statement declares a source over a Delta table."""
    return _option(statement, DELTA) is not None


def resolved(statement: CreateSource, catalog: Catalog, lake: LakeLayout, settings: Settings) -> CreateSource:
    """The statement with columns, and with the version that the source begins with; any other source as it is.

    Raises:
        DeltaMissing, DeltaUnsupported, DeltaVersionGone: the table cannot be read.
        NotSupported: a column has a type or a name that the language does not have.
        TypeMismatch, UnknownName: a declared column is not in the table, or has another type there.
        OptionRefused: an option has a wrong value.
    """
    place = _option(statement, DELTA)
    if place is None:
        return statement
    location = _absolute(place)
    found = None if statement.name in catalog.broken else catalog.find(statement.name)
    existing = found if isinstance(found, Source) and found.options.get(DELTA) == location else None
    start = _option(statement, _START)
    if start is not None and not re.fullmatch(r"\d{1,18}", start.value):
        raise error(OptionRefused, start, f"{_START} is a version of the table, 0 or more, not '{start.value}'")
    columns = statement.columns
    if existing is not None and not columns and _keys(statement) == existing.key:
        columns = declared(existing.columns, statement)
    table = open_table(location, settings.storage.options())
    if not columns or existing is None:
        columns = _columns(statement, table)
    if start is None:
        known = existing.topic if existing is not None else _begun(statement, lake, location)
        origin = origin_of(known) if known is not None else None
        start = Option(_START, str(origin.version if origin is not None and origin.snapshot else table.head()))
        # The rows that are there are part of the stream: only a version that was asked for leaves them out.
        start = replace(start, value=f"{start.value}{_WITH_ROWS}" if statement.kind == "stream" else start.value)
    others = tuple(each for each in statement.options if each.name not in (DELTA, _START, _KEY))
    options = (replace(place, value=location), start, *others)
    return replace(statement, columns=columns, options=options)


_WITH_ROWS: Final = "@"
"""After the version of a stream that begins with the rows which are there."""


def foreign_options(statement: CreateSource, columns: tuple[Column, ...], options: Sequence[Option]) -> SourceOptions:
    """Check the options of a resolved statement, without those of ownership.

    Raises:
        OptionRefused, UnknownName: as of `source_options`.
    """
    given = allowed(options, _OWN_OPTIONS, "a source over a Delta table")
    text = given[_START].value
    with_rows = statement.kind == "table" or text.endswith(_WITH_ROWS)
    version = int(text.removesuffix(_WITH_ROWS))
    location = given[DELTA].value
    origin = Origin(location, version if with_rows else version - 1, with_rows)
    timestamp, pattern = time_options(given, columns)
    return SourceOptions(
        topic=str(origin),
        key_format=ROWS,
        value_format=ROWS,
        timestamp=timestamp,
        timestamp_format=pattern,
        other={DELTA: location, _START: str(version), **kept_rows(given)},
    )


def _option(statement: CreateSource, name: str) -> Option | None:
    return next((each for each in statement.options if each.name == name), None)


def _absolute(place: Option) -> str:
    """The path or URL that does not depend on where the command is started."""
    try:
        folder = disk_folder(place.value)
    except SettingsError as refused:
        raise error(OptionRefused, place, f"{DELTA} names no table: {refused.message}", refused.hint) from refused
    return str(folder) if folder is not None else place.value.rstrip("/")


def _keys(statement: CreateSource) -> tuple[str, ...]:
    """The columns that KEY names."""
    option = _option(statement, _KEY)
    return tuple(name.strip().lower() for name in option.value.split(",")) if option is not None else ()


def _begun(statement: CreateSource, lake: LakeLayout, location: str) -> str | None:
    """The topic that the event log of a definition whose file is lost was read from."""
    log = statement.name if statement.kind == "stream" else tables.log_below(statement.name)
    head = reader.head(lake.table(log))
    known = head.record.offsets if head is not None else {}
    return next((topic for topic in known if (found := origin_of(topic)) and found.location == location), None)


def declared(columns: Sequence[Column], statement: CreateSource) -> tuple[DeclaredColumn, ...]:
    """Columns that a statement left out, as it would have declared them."""
    word: Literal["PRIMARY KEY", "KEY"] = "PRIMARY KEY" if statement.kind == "table" else "KEY"
    line, place = statement.line, statement.column
    return tuple(
        DeclaredColumn(each.name, each.type, word if each.key else None, line, place, each.header, each.required)
        for each in columns
    )


def _columns(statement: CreateSource, table: ForeignTable) -> tuple[DeclaredColumn, ...]:
    """The columns that a statement declares, checked against those of the table; or all of the table's."""
    nodes = {node.name: node for node in table.schema(table.head()).columns}
    if statement.columns:
        for column in statement.columns:
            _check_declared(column, nodes, table)
        return statement.columns
    keys = _keys(statement)
    option = _option(statement, _KEY)
    for name in keys:
        if name not in nodes and option is not None:
            raise UnknownName.among("column", name, nodes, line=option.line, column=option.column)
    found = [Column(node.name, _readable(node, nodes, table, statement), node.name in keys) for node in nodes.values()]
    return declared(found, statement)


def _check_declared(column: DeclaredColumn, nodes: dict[str, Node], table: ForeignTable) -> None:
    node = nodes.get(column.name)
    if node is None:
        raise UnknownName.among("column", column.name, nodes, line=column.line, column=column.column)
    if node.type != column.type:
        raise TypeMismatch(
            f"column '{column.name}' is {node.type or node.delta_type} in '{table.path}', not {column.type}",
            line=column.line,
            column=column.column,
            hint="leave the columns out: they are taken from the table",
        )


def _readable(node: Node, nodes: dict[str, Node], table: ForeignTable, statement: CreateSource) -> SqlType:
    """The type of a column that the language can name and hold."""
    fits = [each for each in nodes.values() if each.type is not None and not _is_taken(each.name)]
    listed = ", ".join(f"{each.name} {each.type}" for each in fits)
    hint = f"name the columns to read: CREATE {statement.kind.upper()} {statement.name} ({listed}) WITH (…)"
    if node.type is None:
        what = f"column '{node.name}' of '{table.path}' is {node.delta_type.upper()}, which the language does not have"
        raise NotSupported(what, line=statement.line, column=statement.column, hint=hint)
    if _is_taken(node.name):
        what = f"column '{node.name}' of '{table.path}' has a name that is reserved here"
        raise NotSupported(what, line=statement.line, column=statement.column, hint=hint)
    return node.type


def _is_taken(name: str) -> bool:
    return is_reserved(name) or name in WINDOW_BOUNDS
