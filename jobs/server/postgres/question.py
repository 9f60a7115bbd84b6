"""What a session asks of the process that answers queries: the rows of a SELECT, or the types of one.

text ──reads the system catalog alone──> strandline.jobs.server.postgres.system_catalog, by DuckDB
     └─otherwise───────────────────────> the language, as `POST /v1/query` takes it: same cut, limits and scopes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sqlglot import exp

from strandline.jobs.catalog.stored_names import as_stored
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.serve.catalogued import names_read, readable_named
from strandline.jobs.serve.errors import RowNotAnswered
from strandline.jobs.server.postgres.messages import line_and_column, place_of
from strandline.jobs.server.postgres.parameters import sql_of_value
from strandline.jobs.server.postgres.substituted import Spot, Substituted, spots, substituted
from strandline.jobs.server.postgres.system_catalog import SystemCatalog
from strandline.jobs.server.postgres.wire_types import UNSPECIFIED, Refusal, SqlState, oids_of, sent_type, told_oids
from strandline.jobs.server.state.worker import Answered, QueryRequest, answered, columns
from strandline.jobs.sql.from_text import type_of
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.server.postgres.parameters import Parameter
    from strandline.jobs.server.postgres.system_catalog import Caller
    from strandline.jobs.server.state.access import Token
    from strandline.jobs.server.state.worker import Shared


# Types of the parameters that neither the client nor the text gives one: what they are compared with says it.
#
# WHERE id = $1               the type of the column id
# WHERE day BETWEEN $1 AND $2 the type of the column day
# WHERE id = ANY($1)          an array of the type of the column id
# anything else               text, as PostgreSQL has it


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
        statement = as_stored(statement, catalog)
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


A = TypeVar("A")

_ALL_ROWS: Final = str(10**15)


@dataclass(frozen=True)
class Described:
    """What a statement takes and gives: the oids of its parameters, the names and types of its columns."""

    parameters: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True)
class TypedQuestion:
    """A text whose parameters have types, but no values yet.

    Attributes:
        given: the oids that the client gave.
        arrays: the numbers of the parameters that are arrays of what a column is compared with.
    """

    text: str
    places: tuple[Spot, ...]
    given: tuple[int, ...]
    types: tuple[SqlType, ...]
    arrays: frozenset[int]

    @classmethod
    def of(cls, text: str, given: tuple[int, ...], catalog: Catalog) -> TypedQuestion:
        """The types of a text's parameters. Raises SqlSyntaxError: a quote or comment is not closed."""
        places = tuple(spots(text))
        types = parameter_types(text, places, given, catalog)
        return cls(text, places, given, types, frozenset(spot.parameter for spot in places if spot.quantified))

    @property
    def oids(self) -> tuple[int, ...]:
        """Of the parameters, as the client is told them."""
        return told_oids(self.given, self.types)

    def with_values(self, parameters: Sequence[Parameter]) -> Substituted:
        """The text with literals in the place of the parameters.

        Raises:
            Refusal: a parameter is no value of its type, or there are more or fewer than the text has.
        """
        values = _values(parameters, self.oids, self.types, self.arrays)
        for spot in self.places:
            if spot.is_count and parameters[spot.parameter - 1].value is None:
                # LIMIT NULL is no limit, OFFSET NULL none either.
                skips = self.text[: spot.begin].rstrip().upper().endswith("OFFSET")
                values[spot.parameter - 1] = "0" if skips else _ALL_ROWS
        return substituted(self.text, self.places, values)

    def with_each(self, value: Callable[[SqlType], str]) -> Substituted:
        """The text with a literal of its type in the place of each parameter."""
        values = [value(each) for each in self.types]
        for spot in self.places:
            if spot.is_count:
                values[spot.parameter - 1] = "1"
            elif spot.quantified:
                (element,) = self.types[spot.parameter - 1].args or (t.VARCHAR,)
                values[spot.parameter - 1] = f"ARRAY[{value(element)}]"
        return substituted(self.text, self.places, values)


def _values(
    parameters: Sequence[Parameter], oids: Sequence[int], types: Sequence[SqlType], arrays: Collection[int] = ()
) -> list[str]:
    if len(types) != len(parameters):
        message = f"parameters of the statement: {len(types)}; values that were bound: {len(parameters)}"
        raise Refusal(SqlState.PROTOCOL, message)
    read = [each.told(oid).read() for each, oid in zip(parameters, oids, strict=True)]
    return [
        sql_of_value([None] if value is None and number in arrays else value, kind)
        for number, (value, kind) in enumerate(zip(read, types, strict=True), 1)
    ]


@dataclass(frozen=True)
class RowsAsked:
    """The rows of a SELECT with its parameters."""

    text: str
    parameters: tuple[Parameter, ...]
    terms: Terms
    token: Token
    caller: Caller

    def answered(self, shared: Shared) -> Answered:
        """The rows, as an Arrow stream.

        Raises:
            StrandlineError: as of `jobs.server.state.worker.answered`; Refusal: a parameter is no value of its type.
        """
        catalog = shared.catalogued.catalog
        given = tuple(each.oid for each in self.parameters)
        system = SystemCatalog.of(self.text, catalog)
        if system is not None:
            oids = system.parameter_oids(given)
            values = _values(self.parameters, oids, [sent_type(oid) or t.VARCHAR for oid in oids])
            try:
                return system.answer(values, self.terms, self.token, self.caller, shared.database)
            except RowNotAnswered as error:
                # Many a text is one of the language too (`SELECT 1 / 0`), which says better what fails.
                try:
                    self._of_language(catalog, shared)
                except RowNotAnswered:
                    raise
                except StrandlineError:
                    pass
                raise error from None
        return self._of_language(catalog, shared)

    def _of_language(self, catalog: Catalog, shared: Shared) -> Answered:
        given = tuple(each.oid for each in self.parameters)
        made = TypedQuestion.of(self.text, given, catalog).with_values(self.parameters)
        asked = QueryRequest(made.text, self.terms, self.token, "arrow")
        return _placed(made, self.text, lambda: answered(asked, catalog, shared))


@dataclass(frozen=True)
class TypesAsked:
    """The types of a SELECT whose parameters have no values yet; `oids` are those that the client gave."""

    text: str
    oids: tuple[int, ...]
    terms: Terms
    token: Token
    caller: Caller

    def answered(self, shared: Shared) -> Described:
        """The types. Errors as of `RowsAsked.answered`."""
        catalog = shared.catalogued.catalog
        system = SystemCatalog.of(self.text, catalog)
        if system is not None:
            oids = system.parameter_oids(self.oids)
            values = [sql_of_value(None, sent_type(oid) or t.VARCHAR) for oid in oids]
            found = system.answer(values, self.terms, self.token, self.caller, shared.database)
            return Described(oids, found.names, found.types)
        binding = TypedQuestion.of(self.text, self.oids, catalog)
        made = binding.with_each(partial(sql_of_value, None))
        asked = QueryRequest(made.text, self.terms, self.token, "arrow")
        names, kinds = _placed(made, self.text, lambda: columns(asked, catalog, shared.lake))
        return Described(binding.oids, names, kinds)


def _placed(made: Substituted, text: str, ask: Callable[[], A]) -> A:
    """What `ask` returns; an error's line and column are those of the text that the client wrote."""
    try:
        return ask()
    except SqlError as error:
        if error.line is not None:
            place = made.original(place_of(made.text, error.line, error.column or 1))
            line, column = line_and_column(text, place)
            error.line = None
            raise error.placed(line, column) from None
        raise
