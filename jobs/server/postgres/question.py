"""What a session asks of the process that answers queries: the rows of a SELECT, or the types of one.

text ──reads the system catalog alone──> strandline.jobs.server.pg_catalog, by DuckDB
     └─otherwise───────────────────────> the language, as `POST /v1/query` takes it: same cut, limits and scopes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.server.pg_catalog.answer import SystemCatalog
from strandline.jobs.server.pg_values.parameters import sql_of_value
from strandline.jobs.server.pg_values.refusal import Refusal, SqlState
from strandline.jobs.server.pg_values.wire_types import sent_type, told_oids
from strandline.jobs.server.postgres.failures import line_and_column, place_of
from strandline.jobs.server.postgres.inference import parameter_types
from strandline.jobs.server.postgres.substituted import Spot, Substituted, spots, substituted
from strandline.jobs.server.queries.worker import Answered, Asked, answered, columns
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.server.access.tokens import Token
    from strandline.jobs.server.pg_catalog.contents import Caller
    from strandline.jobs.server.pg_values.parameters import Parameter

A = TypeVar("A")


@dataclass(frozen=True)
class Described:
    """What a statement takes and gives: the oids of its parameters, the names and types of its columns."""

    parameters: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True)
class Binding:
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
    def of(cls, text: str, given: tuple[int, ...], catalog: Catalog) -> Binding:
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
        return substituted(self.text, self.places, _values(parameters, self.oids, self.types, self.arrays))

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

    def answered(self, settings: Settings) -> Answered:
        """The rows, as an Arrow stream.

        Raises:
            StrandlineError: as of `jobs.server.queries.worker.answered`; Refusal: a parameter is no value of its type.
        """
        catalog = Catalog(Lake(settings.lake))
        given = tuple(each.oid for each in self.parameters)
        system = SystemCatalog.of(self.text, catalog)
        if system is not None:
            oids = system.parameter_oids(given)
            values = _values(self.parameters, oids, [sent_type(oid) or t.VARCHAR for oid in oids])
            return system.answer(values, self.terms, self.token, self.caller)
        made = Binding.of(self.text, given, catalog).with_values(self.parameters)
        asked = Asked(made.text, self.terms, self.token, "arrow")
        return _placed(made, self.text, lambda: answered(asked, catalog, settings))


@dataclass(frozen=True)
class TypesAsked:
    """The types of a SELECT whose parameters have no values yet; `oids` are those that the client gave."""

    text: str
    oids: tuple[int, ...]
    terms: Terms
    token: Token
    caller: Caller

    def answered(self, settings: Settings) -> Described:
        """The types. Errors as of `RowsAsked.answered`."""
        catalog = Catalog(Lake(settings.lake))
        system = SystemCatalog.of(self.text, catalog)
        if system is not None:
            oids = system.parameter_oids(self.oids)
            values = [sql_of_value(None, sent_type(oid) or t.VARCHAR) for oid in oids]
            found = system.answer(values, self.terms, self.token, self.caller)
            return Described(oids, found.names, found.types)
        binding = Binding.of(self.text, self.oids, catalog)
        made = binding.with_each(partial(sql_of_value, None))
        asked = Asked(made.text, self.terms, self.token, "arrow")
        names, kinds = _placed(made, self.text, lambda: columns(asked, catalog, Lake(settings.lake)))
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
