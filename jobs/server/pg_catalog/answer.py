"""The answer of a query over the system catalog: by DuckDB, over tables made for this one query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.functions.python.register import Library
from strandline.jobs.model import types as t
from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot
from strandline.jobs.serve.pull import Answer
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.terms import QueryBudget
from strandline.jobs.server.pg_catalog.contents import contents
from strandline.jobs.server.pg_catalog.parts import FUNCTIONS, TABLES, needed, read_parts
from strandline.jobs.server.pg_catalog.translate import CatalogQuery, catalog_query
from strandline.jobs.server.pg_values.wire_types import TEXT, oid_named, oids_of
from strandline.jobs.server.queries.worker import Answered, arrow_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.query_engine import QueryDatabase
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.server.access.tokens import Token
    from strandline.jobs.server.pg_catalog.contents import Caller
    from strandline.jobs.server.pg_catalog.parts import CatalogStatement


# The types of DuckDB's answers as the language's: a query over the system catalog may make types that no view has.


def as_language_has_it(table: pa.Table) -> tuple[pa.Table, tuple[SqlType, ...]]:
    """The table with the types of the language, and those types."""
    import pyarrow as pa

    types = tuple(_type_of(field.type) for field in table.schema)
    columns = [column.cast(each.arrow()) for column, each in zip(table.columns, types, strict=True)]
    return pa.table(columns, names=[str(number) for number in range(len(columns))]), types


def _type_of(arrow: pa.DataType) -> SqlType:
    import pyarrow.types as kinds

    if kinds.is_list(arrow):
        # Lists of oids, for which there is no type here. Drivers know text[] by heart, and asyncpg asks for the other
        # types by a query that has such a list itself.
        return t.array(t.VARCHAR if kinds.is_int64(arrow.value_type) else _type_of(arrow.value_type))
    if kinds.is_decimal(arrow):
        return t.decimal(arrow.precision, arrow.scale)
    for is_it, sql_type in (
        (kinds.is_boolean, t.BOOLEAN),
        (kinds.is_uint32, t.BIGINT),
        (kinds.is_int64, t.BIGINT),
        (kinds.is_uint64, t.decimal(20, 0)),
        (kinds.is_integer, t.INT),
        (kinds.is_floating, t.DOUBLE),
        (kinds.is_date, t.DATE),
        (kinds.is_timestamp, t.TIMESTAMP),
        (kinds.is_binary, t.BYTES),
    ):
        if is_it(arrow):
            return sql_type
    return t.VARCHAR


_MAY_READ_IT: Final = re.compile(r"\bpg_\w|\binformation_schema\b", re.I)
_READS: Final = re.compile(r"\bFROM\b|^EXPLAIN\b", re.I)


@dataclass(frozen=True)
class SystemCatalog:
    """One query over the system catalog, and what it is answered from."""

    query: CatalogQuery
    parts: tuple[CatalogStatement, ...]
    catalog: Catalog

    @classmethod
    def of(cls, text: str, catalog: Catalog) -> SystemCatalog | None:
        """The query of a text; None when it is one for the language."""
        if _READS.search(text) and not _MAY_READ_IT.search(text):
            return None
        parts = read_parts()
        query = catalog_query(text, parts, set(catalog.relations()))
        return None if query is None else cls(query, parts, catalog)

    def parameter_oids(self, given: Sequence[int]) -> tuple[int, ...]:
        """The oids of its parameters: those that the client gave, those of the casts around them, text otherwise."""
        casts = self.query.parameters()
        return tuple(
            oid or oid_named(casts.get(number, "")) or TEXT for number, oid in enumerate(oids_of(given, casts), 1)
        )

    def answer(
        self, values: Sequence[str], terms: Terms, token: Token, caller: Caller, database: QueryDatabase
    ) -> Answered:
        """The rows, as an Arrow stream.

        Args:
            values: of its parameters, as SQL.
            database: that it is computed in.

        Raises:
            InvalidQuery: DuckDB refuses it.
            TimeLimit, TooLarge: it takes more than it may.
        """
        functions = {part.name.partition(".")[2] for part in self.parts if part.name.startswith(f"{FUNCTIONS}.")}
        text = self.query.bound(values).duckdb(functions)
        rows = contents(self.catalog, token, caller)
        with QueryEngine(Library((), ()), QueryBudget(terms.limits), database) as duck:
            for part in needed(self.parts, self.query.names(text)):
                duck.define(part.sql)
                filling = rows.get(part.name.partition(".")[2]) if part.name.startswith(f"{TABLES}.") else None
                if filling:
                    _fill(duck, part.name, filling)
            found = duck.query(text, {})
        table, types = as_language_has_it(found)
        answer = Answer(tuple(found.column_names), types, table, ConsistentSnapshot({}))
        return Answered(answer.names, types, arrow_stream(answer), {}, None, None)


def _fill(duck: QueryEngine, name: str, rows: list[dict[str, object]]) -> None:
    import pyarrow as pa

    # Arrow takes the columns of the first row alone: those that it does not name would be lost in silence.
    assert all(row.keys() == rows[0].keys() for row in rows), name
    duck.define(f"INSERT INTO {name} BY NAME SELECT * FROM rows", pa.Table.from_pylist(rows))
