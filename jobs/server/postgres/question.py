"""What a session asks of the process that answers queries: the rows of a SELECT, or the types of one.

text ──reads the system catalog alone──> jobs.server.pg_catalog, by DuckDB
     └─otherwise───────────────────────> the language, as `POST /v1/query` takes it: same cut, limits and scopes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from jobs.catalog.catalog import Catalog
from jobs.model import types as t
from jobs.model.errors import SqlError
from jobs.server.pg_catalog.answer import SystemCatalog
from jobs.server.pg_values.parameters import sql_of_value
from jobs.server.pg_values.refusal import Refusal, SqlState
from jobs.server.pg_values.wire_types import sent_type, told_oids
from jobs.server.postgres.failures import line_and_column, place_of
from jobs.server.postgres.inference import parameter_types
from jobs.server.postgres.substituted import Substituted, spots, substituted
from jobs.server.queries.worker import Answered, Asked, answered, columns
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from jobs.model.settings import Settings
    from jobs.model.types import SqlType
    from jobs.serve.terms import Terms
    from jobs.server.access.tokens import Token
    from jobs.server.pg_catalog.contents import Caller
    from jobs.server.pg_values.parameters import Parameter

A = TypeVar("A")


@dataclass(frozen=True)
class Described:
    """What a statement takes and gives: the oids of its parameters, the names and types of its columns."""

    parameters: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[SqlType, ...]


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
            values = self._values(oids, [sent_type(oid) or t.VARCHAR for oid in oids])
            return system.answer(values, self.terms, self.token, self.caller)
        places = spots(self.text)
        types = parameter_types(self.text, places, given, catalog)
        arrays = {spot.parameter for spot in places if spot.quantified}
        made = substituted(self.text, places, self._values(told_oids(given, types), types, arrays))
        asked = Asked(made.text, self.terms, self.token, "arrow")
        return _placed(made, self.text, lambda: answered(asked, catalog, settings))

    def _values(self, oids: Sequence[int], types: Sequence[SqlType], arrays: Collection[int] = ()) -> list[str]:
        if len(types) != len(self.parameters):
            message = f"parameters of the statement: {len(types)}; values that were bound: {len(self.parameters)}"
            raise Refusal(SqlState.PROTOCOL, message)
        read = [each.told(oid).read() for each, oid in zip(self.parameters, oids, strict=True)]
        return [
            sql_of_value([None] if value is None and number in arrays else value, kind)
            for number, (value, kind) in enumerate(zip(read, types, strict=True), 1)
        ]


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
        places = spots(self.text)
        types = parameter_types(self.text, places, self.oids, catalog)
        values = [sql_of_value(None, each) for each in types]
        for spot in places:
            if spot.is_count:
                values[spot.parameter - 1] = "1"
            elif spot.quantified:
                values[spot.parameter - 1] = sql_of_value([None], types[spot.parameter - 1])
        made = substituted(self.text, places, values)
        asked = Asked(made.text, self.terms, self.token, "arrow")
        names, kinds = _placed(made, self.text, lambda: columns(asked, catalog))
        return Described(told_oids(self.oids, types), names, kinds)


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
