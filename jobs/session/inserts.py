"""`INSERT INTO … VALUES`: constants become records of a source's topic, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import InvalidQuery, UnknownName
from strandline.jobs.session.literals import evaluate
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.sql.syntax import Delete, InsertValues, Update
    from strandline.state_store.layout import Lake

_ROWTIME = "rowtime"
"""A column that may be given: the record's timestamp, milliseconds since the epoch; now by default."""


def insert(statement: InsertValues, catalog: Catalog, settings: Settings, lake: Lake) -> int:
    """Append the rows to the source's topic.

    Returns:
        The number of rows.

    Raises:
        UnknownName: no such source or column.
        InvalidQuery: the target is a view, a column is named twice, or a row has too few or too many values.
        TypeMismatch: a value does not fit its column. Nothing was written.
        SourceUnavailable: the broker or registry does not answer.
    """
    source = target_of(statement, catalog)
    types = {column.name: column.type for column in source.columns}
    names = _columns(statement, source, {*types, _ROWTIME})
    types.setdefault(_ROWTIME, t.BIGINT)
    rows = []
    for row in statement.rows:
        if len(row) != len(names):
            raise _invalid(
                statement,
                f"a row has {len(row)} values for {len(names)} columns",
                f"the columns are {', '.join(names)}",
            )
        rows.append({name: evaluate(value, types[name], name) for name, value in zip(names, row, strict=True)})
    from strandline.jobs.ingest.produce import insert_rows

    return insert_rows(source, rows, settings, lake)


def target_of(statement: InsertValues | Delete | Update, catalog: Catalog) -> Source:
    """The source whose topic a statement writes.

    Raises:
        UnknownName: there is no such stream or table.
        InvalidQuery: it is a view, or a SOURCE.
    """
    found = catalog.find(statement.target)
    if found is None:
        known = (catalog.called.of(d.name) for d in catalog.definitions() if isinstance(d, Source))
        raise UnknownName.among(
            "stream or table", statement.target, known, line=statement.line, column=statement.column
        )
    if not isinstance(found, Source):
        raise InvalidQuery(
            sentence("'{}' is a view: its rows follow from its inputs", Name(found.name)),
            line=statement.line,
            column=statement.column,
            hint=sentence("change what it reads: {}", joined(", ", (Text(Name(each)) for each in found.inputs))),
        )
    if found.read_only:
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: it is read only", Name(found.name)),
            line=statement.line,
            column=statement.column,
            hint="others write its topic",
        )
    return found


def _columns(statement: InsertValues, source: Source, known: Iterable[str]) -> tuple[str, ...]:
    names = statement.columns or tuple(column.name for column in source.columns)
    headers = {column.name for column in source.columns if column.header is not None}
    for position, name in enumerate(names):
        if name in headers:
            raise _invalid(statement, f"column '{name}' comes from the record's headers: INSERT writes none")
        if name not in known:
            raise UnknownName.among("column", name, known, line=statement.line, column=statement.column)
        if name in names[:position]:
            raise _invalid(statement, f"column '{name}' is named twice")
    return names


def _invalid(statement: InsertValues, message: str, hint: str | None = None) -> InvalidQuery:
    return InvalidQuery(message, line=statement.line, column=statement.column, hint=hint)
