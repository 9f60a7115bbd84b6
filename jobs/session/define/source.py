"""CREATE STREAM and CREATE TABLE with columns, HEADERS among them: the source that they declare, checked; and ALTER.

By ALTER, or by its CREATE again, further columns of the value are taken in, and any other change is refused with all it
breaks.

    sales (shop, qty)  ->  sales (shop, qty, coupon)      ALTER … ADD COLUMN, or its CREATE with more columns at the end

Events that are in the lake have NULL in a new column. What reads the source keeps the columns that it was registered
with, so nothing of it can break.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import (
    ALL_HEADERS,
    CHANGE_FORMATS,
    Column,
    InsertQuery,
    Kind,
    Source,
    without_ownership,
)
from strandline.jobs.model.errors import InvalidQuery, NameInUse, SqlError
from strandline.jobs.model.tables import HEADERS, WINDOW_BOUNDS, alike, differ_only_in_case
from strandline.jobs.model.types import BYTES, BaseType
from strandline.jobs.query.clauses.select_list import is_reserved
from strandline.jobs.session.define.foreign import foreign_options, is_foreign
from strandline.jobs.session.define.options import check_columns, source_options
from strandline.jobs.session.define.replaced import ColumnDiff
from strandline.jobs.session.define.view_options import check_columns_of, check_quarantine_of_source, split
from strandline.jobs.sql.syntax import AlterSource, CreateSource, DeclaredColumn
from strandline.state_store.layout import safe_name
from strandline.state_store.wording import Name, quoted, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View


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


_NAMED = {
    "topic": "KAFKA_TOPIC",
    "key_format": "KEY_FORMAT",
    "value_format": "VALUE_FORMAT",
    "timestamp": "TIMESTAMP",
    "timestamp_format": "TIMESTAMP_FORMAT",
    "kind": "kind",
    "read_only": "SOURCE",
    "partitions": "PARTITIONS",
    "replicas": "REPLICAS",
}
"""The fields of a source that change how its records are read, by what a statement calls them."""


@dataclass(frozen=True)
class SourceDiff:
    """How two definitions of a source differ, in the words of a statement."""

    columns: ColumnDiff
    others: tuple[str, ...]

    @classmethod
    def of(cls, present: Source, following: Source) -> SourceDiff:
        """The difference between a source and the definition that is to follow."""
        others = []
        if present.key != following.key:
            others.append(f"the key from {_listed(present.key)} to {_listed(following.key)}")
        for name, word in _NAMED.items():
            before, after = getattr(present, name), getattr(following, name)
            if before != after:
                others.append(f"{word} from {before} to {after}")
        old, new = (without_ownership(each.options) for each in (present, following))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                others.append(f"{name} from {old.get(name)} to {new.get(name)}")
        return cls(ColumnDiff.of(present, following), tuple(others))

    def __str__(self) -> str:
        diff = self.columns
        if diff.added or diff.removed or diff.retyped:
            return ", ".join([str(diff), *self.others])
        return ", ".join(self.others) or "the order or the headers of its columns"


def altered(statement: AlterSource, catalog: Catalog) -> Source:
    """The source with the columns that ALTER adds.

    Raises:
        UnknownName: there is no such source.
        InvalidQuery: it is no source, or a SOURCE that others own; a column cannot be added to it.
        NameInUse: a query into the stream does not give the columns.
    """
    found = catalog.get(statement.name)
    if not isinstance(found, Source):
        raise InvalidQuery(
            sentence("'{}' is computed by a query: its columns are those of the query", Name(statement.name)),
            hint=f"CREATE OR REPLACE … {statement.name} AS SELECT …",
        )
    if found.kind != statement.kind:
        raise InvalidQuery(
            sentence("'{}' is no {}", Name(found.name), statement.kind),
            hint=f"ALTER {found.kind.upper()} {found.name} ADD COLUMN …",
        )
    present = [DeclaredColumn(c.name, c.type, header=c.header) for c in found.columns]
    for column in statement.columns:
        if column.key is not None or column.header is not None:
            raise InvalidQuery(
                f"column '{column.name}' cannot be added: only columns of the value can",
                line=column.line,
                column=column.column,
                hint=f"write ADD COLUMN {column.name} {column.type}",
            )
        check_column(column, [*present, *statement.columns], found.kind)
    check_new_columns(statement.columns)
    added = (Column(each.name, each.type, required=each.required) for each in statement.columns)
    columns = (*found.columns, *added)
    check_columns("value", found.value_format, [each for each in columns if each.part == "value"])
    made = replace(found, columns=columns, sql=f"{found.sql};\n{statement.sql}")
    return extended(found, made, catalog)


def extends(present: Source, following: Source) -> bool:
    """True if a definition only has further columns of the value, after those that the source has."""
    new = following.columns[len(present.columns) :]
    narrow = replace(following, columns=following.columns[: len(present.columns)])
    return bool(new) and all(each.part == "value" for each in new) and _records(narrow) == _records(present)


def extended(present: Source, following: Source, catalog: Catalog) -> Source:
    """The definition that follows when `extends` holds.

    Raises:
        InvalidQuery: it is a SOURCE, as ksqlDB has it, or a column is NOT NULL.
        NameInUse: a query into the stream does not give the columns.
    """
    # The columns of a change stream are those of a table in a database, which gets new ones in the course of time. So
    # does a Delta table, of which `alter_source` checks that none was there when rows were read.
    of_delta = _of_delta(present)
    if present.read_only and not present.change_stream and not of_delta:
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: it cannot be altered", Name(present.name)), hint="drop it, and create it again"
        )
    if of_delta and present.kind == "table" and not present.key:
        raise InvalidQuery(
            sentence(
                "'{}' has no KEY: its rows are told apart by all of their values, so it gets no columns", present.name
            ),
            hint="drop it, and create it again; with KEY it can get columns",
        )
    new = following.columns[len(present.columns) :]
    required = next((each for each in new if each.required), None)
    if required is not None:  # a rebuild would put the records that are there among the dead letters
        raise InvalidQuery(
            sentence("column '{}' cannot be added as NOT NULL: the records that are there have none", required.name),
            hint=f"write {required.name} {required.type} without NOT NULL; or drop the source, and create it with it",
        )
    feeding = [query.name for query in catalog.insert_queries(present.name)]
    if feeding:
        named = quoted(feeding)
        raise NameInUse(
            sentence(
                "'{}' would change by {}, and break what inserts into it: {}, whose rows have no column '{}'",
                Name(present.name),
                SourceDiff.of(present, following),
                named,
                new[0].name,
            ),
            hint="a stream that queries insert into cannot get columns: DROP it, and CREATE it and the queries again",
        )
    return replace(following, pipeline=present.pipeline, added=present.added + len(new))


def _of_delta(source: Source) -> bool:
    origin = origin_of(source.topic)
    return origin is not None and origin.kind == "delta"


def broken_by(present: Source, following: Source, catalog: Catalog) -> dict[str, str]:
    """{what is computed from the source or inserts into it: why it could not go on} when it changes otherwise."""
    queries = (query.name for query in catalog.insert_queries(present.name))
    broken = {name: _reason(name, following, catalog) for name in (*catalog.readers(present.name), *queries)}
    todo = list(broken)
    while todo:
        below = todo.pop(0)
        found = catalog.get(below)
        made = found.target if isinstance(found, InsertQuery) else below
        further = [name for name in catalog.readers(made) if name not in broken]
        broken |= dict.fromkeys(further, sentence("it reads '{}'", Name(made)))
        todo += further
    return broken


def _reason(name: str, following: Source, catalog: Catalog) -> str:
    definition: View | InsertQuery | Source = catalog.get(name)
    try:
        compiled(definition, catalog.supposing(following))
    except SqlError as error:
        return error.message
    return "its rows were computed from the former records"


def _records(source: Source) -> Source:
    """What says how the records of a source are read."""
    return replace(source, sql="", pipeline="", added=0, options=without_ownership(source.options))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
