"""CREATE STREAM and CREATE TABLE with columns, HEADERS among them: the source that they declare, checked."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import ALL_HEADERS, CHANGE_FORMATS, Column, Kind, Source
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.relation import HEADERS, WINDOW_BOUNDS
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.model.types import BYTES, BaseType
from strandline.jobs.query.clauses.select_list import is_reserved
from strandline.jobs.session.define.foreign import foreign_options, is_foreign
from strandline.jobs.session.define.options import source_options
from strandline.jobs.session.define.ownership import check_columns_of, check_quarantine_of_source, split
from strandline.jobs.sql.syntax import CreateSource, DeclaredColumn
from strandline.state_store.layout import safe_name

# Files take 255 bytes at most; those of stages, dead letters and half-written files add up to 80 to a name.
LONGEST_NAME = 170


def source_of(statement: CreateSource, pipeline: str) -> Source:
    """The source that a statement declares.

    Raises:
        InvalidQuery, OptionRefused, NotSupported, UnknownName
    """
    check_name(statement.name)
    if not statement.columns:
        raise InvalidQuery(
            f"'{statement.name}' has no columns", hint=f"write CREATE {statement.kind.upper()} {statement.name} (…) …"
        )
    for column in statement.columns:
        check_column(column, statement.columns, statement.kind)
        _check_header(column, statement.columns)
    columns = tuple(Column(c.name, c.type, c.key is not None, c.header, c.required) for c in statement.columns)
    columns = tuple(sorted(columns, key=lambda c: not c.key))  # keys first, as they are stored
    foreign = is_foreign(statement)
    if statement.kind == "table" and not columns[0].key and not foreign:
        raise InvalidQuery(
            f"the table '{statement.name}' has no key",
            hint="mark the column whose later events replace earlier ones: name TYPE PRIMARY KEY",
        )
    ownership, others = split(statement.options)
    check_columns_of(ownership, columns)
    check_quarantine_of_source(statement.name, ownership)
    options = (
        foreign_options(statement, columns, others) if foreign else source_options(statement.name, columns, others)
    )
    changes = options.value_format in CHANGE_FORMATS
    if changes and statement.kind == "stream":
        raise InvalidQuery(
            f"{options.value_format} tells which rows come and go: '{statement.name}' is a table",
            hint=f"CREATE TABLE {statement.name} (… PRIMARY KEY, …); for the changes themselves as events take "
            "VALUE_FORMAT = 'JSON' with columns before, after and op",
        )
    return Source(
        name=statement.name,
        kind=statement.kind,
        columns=columns,
        topic=options.topic,
        key_format=options.key_format,
        value_format=options.value_format,
        pipeline=pipeline,
        sql=statement.sql,
        partitions=options.partitions,
        replicas=options.replicas,
        timestamp=options.timestamp,
        timestamp_format=options.timestamp_format,
        options={**options.other, **ownership},
        read_only=statement.read_only or foreign or changes,
    )


def check_new_columns(columns: Sequence[DeclaredColumn]) -> None:
    """Check the columns of a source that is not there yet, or those that it gets.

    Raises:
        InvalidQuery: one has the name of a window's bound, or a MAP in the key.
    """
    for column in columns:
        if column.name.lower() in WINDOW_BOUNDS:
            message = f"'{column.name}' is reserved: it is a bound of a window"
        elif column.key and has_map(column.type):
            message = f"the key column '{column.name}' cannot have a MAP in it: {column.type}"
        else:
            continue
        raise InvalidQuery(message, line=column.line, column=column.column)


def check_name(name: str) -> None:
    """Check the name of a stream, table or view.

    Raises:
        InvalidQuery: it is one that Strandline makes itself, or too long for the files that are named after it.
    """
    size = len(safe_name(name))
    if size > LONGEST_NAME:
        raise InvalidQuery(
            f"the name '{name[:40]}…' is too long: {size} bytes as the name of a file, at most {LONGEST_NAME}",
            hint="take a shorter one; letters beyond ASCII count three to twelve",
        )
    if tables.is_made(name):
        raise InvalidQuery(
            f"'{name}' is a name that Strandline makes itself",
            hint="take one without _ or shared__ before it and __log, __dead_letters, __stage_1 or __insert_1 after it",
        )


def check_column(column: DeclaredColumn, columns: Sequence[DeclaredColumn], kind: Kind) -> None:
    """Check a column of a source against the others, itself among them.

    Raises:
        InvalidQuery: its name is reserved or taken, or its key is none that such a source has.
    """
    wanted = "PRIMARY KEY" if kind == "table" else "KEY"
    message = hint = None
    names = [each.name for each in columns]
    taken = alike(column.name, names[: names.index(column.name)])
    if is_reserved(column.name):
        message = f"'{column.name}' is reserved: it cannot be the name of a column"
    elif names.count(column.name) > 1:
        message = f"two columns are named '{column.name}'"
    elif taken is not None:
        message = differ_only_in_case("columns", taken, column.name)
    elif column.key not in (None, wanted):
        article = "a table has a PRIMARY KEY" if kind == "table" else "a stream has a KEY"
        message = f"column '{column.name}' is {column.key}: {article}"
        hint = f"write {column.name} {column.type} {wanted}"
    elif column.key and column.type.base is BaseType.MAP:
        message = f"the key column '{column.name}' cannot be a MAP"
    if message:
        raise InvalidQuery(message, line=column.line, column=column.column, hint=hint)


def _check_header(column: DeclaredColumn, columns: Sequence[DeclaredColumn]) -> None:
    """Check a column that comes from the headers against the others; as ksqlDB does.

    Raises:
        InvalidQuery: it has another type, or a header is asked for twice, or one beside all of them.
    """
    if column.header is None:
        return
    everything = column.header == ALL_HEADERS
    wanted = HEADERS if everything else BYTES
    message = None
    if column.type != wanted:
        message = f"a column of {'HEADERS' if everything else 'one HEADER'} is {wanted}, not {column.type}"
    for other in columns[: columns.index(column)]:
        if other.header == column.header:
            message = f"'{other.name}' and '{column.name}' are the same header"
        elif other.header is not None and ALL_HEADERS in (other.header, column.header):
            message = f"'{other.name}' and '{column.name}': a source has HEADERS or single ones, not both"
    if message is not None:
        raise InvalidQuery(message, line=column.line, column=column.column)
