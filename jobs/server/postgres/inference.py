"""Types of the parameters that neither the client nor the text gives one: what they are compared with says it.

WHERE id = $1               the type of the column id
WHERE day BETWEEN $1 AND $2 the type of the column day
WHERE id = ANY($1)          an array of the type of the column id
anything else               text, as PostgreSQL has it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.stored_names import stored_statement
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.serve.readable import names_read, readable_named
from strandline.jobs.server.pg_values.wire_types import UNSPECIFIED, oids_of, sent_type
from strandline.jobs.server.postgres.substituted import substituted
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.jobs.sql.types_text import type_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.server.postgres.substituted import Spot


def parameter_types(text: str, places: Sequence[Spot], given: Sequence[int], catalog: Catalog) -> tuple[SqlType, ...]:
    """The types of a statement's parameters, `$1` first.

    Args:
        places: those of the parameters in the text.
        given: the oids that the client gave; 0, or none at the end, where it leaves the type to the server.
    """
    oids = oids_of(given, (spot.parameter for spot in places))
    written = {spot.parameter: spot.type for spot in places if spot.type is not None}
    open_ones = any(oid == UNSPECIFIED and number not in written for number, oid in enumerate(oids, 1))
    known = {spot.parameter: t.array(t.VARCHAR) for spot in places if spot.quantified}
    known |= _inferred(text, places, catalog) if open_ones else {}
    return tuple(
        written.get(number) or sent_type(oid) or known.get(number) or t.VARCHAR for number, oid in enumerate(oids, 1)
    )


def _inferred(text: str, places: Sequence[Spot], catalog: Catalog) -> dict[int, SqlType]:
    """{number: type} of the parameters that stand beside a column or in a CAST. A text with mistakes has none: whoever
    reads it next says what is wrong with it."""
    values = [f"${number}" for number in range(1, max(spot.parameter for spot in places) + 1)]
    arrays = {spot.parameter for spot in places if spot.quantified}
    for spot in places:
        if spot.parameter:
            value = "1" if spot.type is not None else f"${spot.parameter}"
            values[spot.parameter - 1] = f"ARRAY[{value}]" if spot.parameter in arrays else value
    try:
        (statement,) = parse(substituted(text, places, values).text)
        statement = stored_statement(statement, catalog.name_map)
        found = _beside_columns(statement.query, catalog) if isinstance(statement, Select) else {}
    except (SqlError, ValueError):
        return {}
    return {number: t.array(each) if number in arrays else each for number, each in found.items()}


def _beside_columns(query: exp.Query, catalog: Catalog) -> dict[int, SqlType]:
    known: dict[str, set[SqlType]] = {}
    for name in names_read(query, catalog):
        for column, sql_type in readable_named(name, catalog).columns:
            known.setdefault(column, set()).add(sql_type)
    found: dict[int, SqlType] = {}
    for node in query.find_all(exp.Column):
        number = _number(node)
        beside = _beside(node, known) if number else None
        if beside is not None:
            found.setdefault(number, beside)
    return found


def _number(node: exp.Column) -> int:
    """The number of a parameter, which the language reads as the name of a column: `$1`; 0 for any other."""
    name = node.name
    return int(name[1:]) if name.startswith("$") and name[1:].isdecimal() else 0


def _beside(node: exp.Column, known: dict[str, set[SqlType]]) -> SqlType | None:
    parent = node.parent
    if isinstance(parent, exp.Cast):
        try:
            return type_of(parent.to)
        except SqlError:
            return None  # the statement's own reading says what is wrong with it
    if not isinstance(parent, exp.Predicate | exp.In | exp.Between):
        return None
    types = {each for other in parent.iter_expressions() for each in _types(other, known)}
    return types.pop() if len(types) == 1 else None


def _types(node: exp.Expr, known: dict[str, set[SqlType]]) -> Collection[SqlType]:
    return known.get(node.name, ()) if isinstance(node, exp.Column) else ()
