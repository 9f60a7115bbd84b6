"""DELETE and UPDATE of a table declared with columns: records of its topic, one for each key that the WHERE names.

DELETE writes a tombstone, UPDATE the whole row as it will be. Neither reaches into the tables: like any event, the
record is taken in by the pipeline, and every view is corrected from the change.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, UnknownName
from strandline.jobs.session.inserts import target_of
from strandline.jobs.session.literals import evaluate
from strandline.jobs.sql.dialect import position_of, quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.sql.syntax import Delete, Update
    from strandline.state_store.layout import Lake

Key = dict[str, object]
"""{key column: value}"""


def delete(statement: Delete, catalog: Catalog, settings: Settings, lake: Lake) -> int:
    """Write a tombstone for each key.

    Returns:
        The number of keys; whether the table has them is known when the tombstones are taken in.

    Raises:
        UnknownName: there is no such table.
        InvalidQuery: it is a stream or a view, or the WHERE is not of its whole key.
        TypeMismatch: a value does not fit its column. Nothing was written.
        SourceUnavailable: the broker or registry does not answer.
    """
    from strandline.jobs.ingest.produce import TOMBSTONE, insert_rows

    source = _table_of(statement, catalog)
    keys = _keys(statement.where, source)
    return insert_rows(source, [{**key, TOMBSTONE: True} for key in keys], settings, lake)


def update(statement: Update, catalog: Catalog, settings: Settings, lake: Lake) -> int:
    """Write the changed row of each key that has one.

    Returns:
        The number of rows written.

    Raises:
        SourceBehind: the present rows are not known until the pipeline has run.
        Others: as `delete`; also for a SET of a key column, an unknown one, or one twice.
    """
    from strandline.jobs.ingest.newest import newest_row
    from strandline.jobs.ingest.produce import insert_rows

    source = _table_of(statement, catalog)
    changed = _assigned(statement, source)
    keys = _keys(statement.where, source)
    present = [row for key in keys if (row := newest_row(source, key, settings, lake)) is not None]
    return insert_rows(source, [{**row, **changed} for row in present], settings, lake)


def _table_of(statement: Delete | Update, catalog: Catalog) -> Source:
    source = target_of(statement, catalog)
    if source.kind != "table":
        raise InvalidQuery(
            sentence("'{}' is a stream: its events stay as they are", Name(source.name)),
            line=statement.line,
            column=statement.column,
            hint="INSERT INTO it an event that says what changed, or declare it as a TABLE with a PRIMARY KEY",
        )
    return source


def _assigned(statement: Update, source: Source) -> dict[str, object]:
    types = {column.name: column.type for column in source.columns}
    changed: dict[str, object] = {}
    for name, value in statement.assignments:
        line, column = position_of(value)
        if name not in types:
            raise UnknownName.among("column", name, types, line=line, column=column)
        if name in source.key or name in changed:
            what = "is the key: delete the row and insert another" if name in source.key else "is set twice"
            raise InvalidQuery(f"column '{name}' {what}", line=line, column=column)
        changed[name] = evaluate(value, types[name], name)
    return changed


def _keys(where: exp.Expression, source: Source) -> list[Key]:
    """The keys that a condition names: `column = constant` or `column IN (constants)` for each key column."""
    found: dict[str, list[object]] = {}
    types = {column.name: column.type for column in source.columns if column.key}
    for term in _terms(where):
        name, values = _named(term, source)
        if name in found:
            raise _not_keys(term, source)
        found[name] = [evaluate(value, types[name], name) for value in values]
    if set(found) != set(types):
        raise _not_keys(where, source)
    names = list(types)
    keys = [dict(zip(names, values, strict=True)) for values in product(*(found[name] for name in names))]
    return [key for place, key in enumerate(keys) if key not in keys[:place]]


def _terms(condition: exp.Expression) -> Iterator[exp.Expr]:
    match condition.unnest():
        case exp.And() as both:
            yield from (term.unnest() for term in both.flatten())
        case single:
            yield single


def _named(term: exp.Expr, source: Source) -> tuple[str, list[exp.Expr]]:
    """The key column of a term, and the constants it is compared with."""
    match term:
        case (
            exp.EQ(this=exp.Column() as column, expression=value)
            | exp.EQ(this=value, expression=exp.Column() as column)
        ):
            values = [value]
        case exp.In(this=exp.Column() as column) if term.expressions:
            values = list(term.expressions)
        case _:
            raise _not_keys(term, source)
    if column.name not in source.key:
        raise _not_keys(term, source)
    return column.name, values


def _not_keys(node: exp.Expr, source: Source) -> InvalidQuery:
    line, column = position_of(node)
    shown = " AND ".join(f"{quote(name)} = …" for name in source.key)
    return InvalidQuery(
        sentence("the WHERE must name whole keys of '{}', and nothing else", Name(source.name)),
        line=line,
        column=column,
        hint=f"WHERE {shown}; several keys: IN (…, …)",
    )
