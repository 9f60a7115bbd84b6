"""INSERT INTO … VALUES, UPDATE and DELETE: constants become records of a source's topic, without a JVM."""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable
from decimal import Decimal, DecimalException, localcontext
from itertools import product
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source, written_elsewhere
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.types import MAX_PRECISION
from strandline.jobs.serve.results import cell
from strandline.jobs.session.conversions import assign, assign_text, convert
from strandline.jobs.sql.dialect import position_of, quote, sql_of
from strandline.jobs.sql.from_text import type_of
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.sql.syntax import Delete, InsertValues, Update
    from strandline.state_store.layout import LakeLayout


_ROWTIME = "rowtime"
"""A column that may be given: the record's timestamp, milliseconds since the epoch; now by default."""


def insert(statement: InsertValues, catalog: Catalog, settings: Settings, lake: LakeLayout) -> int:
    """Append the rows to the source's topic.

    Returns:
        The number of rows.

    Raises:
        UnknownName: no such source or column.
        InvalidQuery: the target is a view, a column is named twice, or a row has too few or too many values.
        TypeMismatch: a value does not fit its column. Nothing was written.
        TopicMissing, TopicReplaced: events were read from the topic, and it is gone. Nothing was written.
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
    return append(source, rows, settings, lake)


def append(source: Source, rows: Sequence[Mapping[str, object]], settings: Settings, lake: LakeLayout) -> int:
    """Append rows, values of Python by column, to a source's topic.

    Returns:
        The number of rows.

    Raises:
        TypeMismatch, EncodeFailed: a value does not fit its column. Nothing was written.
        TopicMissing, TopicReplaced: events were read from the topic, and it is gone. Nothing was written.
        SourceUnavailable: the broker or registry does not answer.
    """
    from strandline.jobs.ingest.produce import insert_rows

    for found in rows:
        _check_required(source, found)
    return insert_rows(source, rows, settings, lake)


def _check_required(source: Source, row: Mapping[str, object]) -> None:
    """Check that a row has all columns that are NOT NULL.

    Raises:
        TypeMismatch: it has not.
    """
    absent = next((column.name for column in source.columns if column.required and row.get(column.name) is None), None)
    if absent is not None:
        raise TypeMismatch(f"column '{absent}' is NOT NULL, and the row has no value for it")


def target_of(statement: InsertValues | Delete | Update, catalog: Catalog) -> Source:
    """Find the source whose topic a statement writes.

    Raises:
        UnknownName: there is no such stream or table.
        InvalidQuery: it is a view, or a SOURCE.
    """
    try:
        return source_named(statement.target, catalog)
    except SqlError as error:
        raise error.placed(statement.line, statement.column)  # noqa: B904 - the same error


def source_named(name: str, catalog: Catalog) -> Source:
    """Find the source whose topic can be written. Raises as `target_of`, without a place."""
    found = catalog.find(name)
    if found is None:
        known = (catalog.name_map.of(d.name) for d in catalog.definitions() if isinstance(d, Source))
        raise UnknownName.among("stream or table", name, known)
    if not isinstance(found, Source):
        raise InvalidQuery(
            sentence("'{}' is a view: its rows follow from its inputs", Name(found.name)),
            hint=sentence("change what it reads: {}", joined(", ", (Text(Name(each)) for each in found.inputs))),
        )
    if found.read_only:
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: it is read only", Name(found.name)), hint=written_elsewhere(found)
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


# DELETE and UPDATE of a table declared with columns: records of its topic, one for each key that the WHERE names.
#
# DELETE writes a tombstone, UPDATE the whole row as it will be. Neither reaches into the tables: like any event, the
# record is taken in by the pipeline, and every view is corrected from the change.

Key = dict[str, object]
"""{key column: value}"""


def delete(statement: Delete, catalog: Catalog, settings: Settings, lake: LakeLayout) -> int:
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


def update(statement: Update, catalog: Catalog, settings: Settings, lake: LakeLayout) -> int:
    """Write the changed row of each key that has one.

    Returns:
        The number of rows written.

    Raises:
        SourceBehind: the present rows are not known until the pipeline has run.
        Others: as `delete`; also for a SET of a key column, an unknown one, or one twice.
    """
    from strandline.jobs.ingest.produce import insert_rows, newest_row

    source = _table_of(statement, catalog)
    changed = _assigned(statement, source)
    keys = _keys(statement.where, source)
    present = [row for key in keys if (row := newest_row(source, key, settings, lake)) is not None]
    for row in present:
        _check_required(source, {**row, **changed})
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
    """Read the keys that a condition names: `column = constant` or `column IN (constants)` for each key column."""
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


# Constant expressions of `INSERT INTO … VALUES`, evaluated to Python values of the columns' types.
#
# There are two steps, as everywhere in SQL: an expression has a value of its own type (1.5 is a DECIMAL, 1e0 a
# DOUBLE), and assigning it to a column widens it or is an error (`jobs.session.conversions`). A text literal alone
# takes the type of its column: '12' is a number for a BIGINT.

_Number = int | float | Decimal

_ARITHMETIC: dict[type[exp.Expr], Callable[[_Number, _Number], _Number]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: lambda a, b: _whole(a, b) if isinstance(a, int) and isinstance(b, int) else operator.truediv(a, b),
    exp.Mod: lambda a, b: a - b * _whole(a, b) if isinstance(a, int) and isinstance(b, int) else operator.mod(a, b),
}
_DECODERS: dict[str, Callable[[str], bytes]] = {
    "hex": lambda text: bytes.fromhex(text.removeprefix("0x")),
    "utf8": lambda text: text.encode("utf-8"),
    "ascii": lambda text: text.encode("ascii"),
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def evaluate(expression: exp.Expr, sql_type: SqlType, column: str) -> object:
    """Evaluate a constant expression as a value of `column`.

    Raises:
        TypeMismatch: the value does not fit the column's type; nothing is converted with loss.
        InvalidQuery: it cannot be computed (a division by zero).
        NotSupported: the expression is not a constant; the message shows it.
    """
    try:
        name = f"column '{column}'"
        if isinstance(expression, exp.Literal) and expression.is_string:
            return assign_text(expression.name, sql_type, name)
        return assign(value_of(expression), sql_type, name)
    except SqlError as error:
        if error.line is not None:
            raise
        line, place = position_of(expression)
        raise type(error)(error.message, line=line, column=place, hint=error.hint) from error


def value_of(node: exp.Expr) -> object:
    """Evaluate a constant expression, in its own type. Raises as `evaluate` does."""
    evaluator = _EVALUATORS.get(type(node))
    if evaluator is None:
        raise _not_constant(node)
    return evaluator(node)


def _call_value(call: exp.Anonymous) -> object:
    arguments: Sequence[exp.Expr] = call.expressions
    if call.name in ("MAP", "STRUCT") and all(isinstance(item, exp.PropertyEQ) for item in arguments):
        pairs = ((_member_name(item.this), value_of(item.expression)) for item in arguments)
        return {key if isinstance(key, str) else cell(key): value for key, value in pairs}
    if call.name == "TO_BYTES" and len(arguments) == 2:
        text, encoding = (value_of(item) for item in arguments)
        decoder = _DECODERS.get(str(encoding).lower())
        if decoder is None or not isinstance(text, str):
            raise InvalidQuery(f"{sql_of(call)}: the encodings are {', '.join(_DECODERS)}")
        try:
            return decoder(text)
        except ValueError as error:
            raise InvalidQuery(f"'{text}' is not {encoding}") from error
    raise _not_constant(call)


def _member_name(node: exp.Expr) -> object:
    return node.name if isinstance(node, exp.Identifier | exp.Column) else value_of(node)


def _number(text: str) -> _Number:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _computed(operation: type[exp.Expr], left: object, right: object, node: exp.Expr) -> _Number | None:
    if left is None or right is None:
        return None
    for operand in (left, right):
        if isinstance(operand, bool) or not isinstance(operand, int | float | Decimal):
            raise TypeMismatch(f"{sql_of(node)}: {cell(operand)} is not a number")
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)  # type: ignore[arg-type]
    try:
        with localcontext(prec=MAX_PRECISION):
            result = _ARITHMETIC[operation](left, right)  # type: ignore[arg-type]
    except (ZeroDivisionError, DecimalException, OverflowError) as error:
        raise InvalidQuery(f"{sql_of(node)} has no value: it divides by zero, or is too large") from error
    return result


def _whole(left: int, right: int) -> int:
    """Divide integers, rounding towards zero as Java does (Python rounds down)."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _joined(left: object, right: object, node: exp.Expr) -> str | None:
    if left is None or right is None:
        return None
    if not isinstance(left, str) or not isinstance(right, str):
        raise TypeMismatch(f"{sql_of(node)}: || joins texts", hint="CAST(… AS VARCHAR)")
    return left + right


def _not_constant(node: exp.Expr) -> NotSupported:
    return NotSupported(
        f"{sql_of(node)} is not a constant: VALUES takes literals, arithmetic, CAST, ARRAY[…], MAP(…), STRUCT(…)",
        hint="INSERT INTO … SELECT computes from other columns",
    )


_EVALUATORS: dict[type[exp.Expr], Callable[[Any], object]] = {
    exp.Null: lambda _: None,
    exp.Boolean: lambda node: bool(node.this),
    exp.Literal: lambda node: str(node.this) if node.is_string else _number(node.this),
    exp.Paren: lambda node: value_of(node.this),
    exp.Neg: lambda node: _computed(exp.Sub, 0, value_of(node.this), node),
    exp.Cast: lambda node: convert(value_of(node.this), type_of(node.to)),
    exp.Array: lambda node: [value_of(item) for item in node.expressions],
    exp.Anonymous: _call_value,
    exp.DPipe: lambda node: _joined(value_of(node.left), value_of(node.right), node),
    **dict.fromkeys(_ARITHMETIC, lambda node: _computed(type(node), value_of(node.left), value_of(node.right), node)),
}
