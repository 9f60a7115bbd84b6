r"""PostgreSQL's system catalog over the catalog of the lake: what psql's `\\d`, drivers and BI tools ask for.

DuckDB answers a query over it, from tables that are made for this one query: the relations of the lake that a token may
read, as PostgreSQL would describe them.

A stream or table with a topic is a table (`r`), a view a materialized view (`m`); a key is a primary key.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.catalog.stored_names import shown_text
from strandline.jobs.functions.python import Library
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import InsertQuery, View
from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot
from strandline.jobs.serve.pull import Answer
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.terms import QueryBudget
from strandline.jobs.server.postgres.catalog_queries import (
    FUNCTIONS,
    TABLES,
    CatalogQuery,
    catalog_query,
    needed,
    read_parts,
)
from strandline.jobs.server.postgres.wire_types import (
    OTHERS,
    PLAIN,
    TEXT,
    modifier_of,
    oid_named,
    oid_of,
    oids_of,
    size_of,
)
from strandline.jobs.server.state.worker import Answered, arrow_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Column, PlainView, Source
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.query_engine import QueryDatabase
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.server.postgres.catalog_queries import CatalogStatement
    from strandline.jobs.server.state.access import Token


# The types of DuckDB's answers as the language's: a query over the system catalog may make types that no view has.


def _as_language_has_it(table: pa.Table) -> tuple[pa.Table, tuple[SqlType, ...]]:
    """The table with the types of the language, and those types."""
    import pyarrow as pa

    types = tuple(_type_of(field.type) for field in table.schema)
    columns = [_cast(column, each) for column, each in zip(table.columns, types, strict=True)]
    return pa.table(columns, names=[str(number) for number in range(len(columns))]), types


def _cast(column: pa.ChunkedArray, sql_type: SqlType) -> pa.ChunkedArray | pa.Array:
    import pyarrow as pa

    try:
        return column.cast(sql_type.arrow())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a row, a map, an interval
        return pa.array([None if each is None else _text(each) for each in column.to_pylist()], pa.string())


def _text(value: object) -> str:
    import pyarrow as pa

    if isinstance(value, pa.MonthDayNano):
        months, days, nanoseconds = value
        return f"{months} mons {days} days {nanoseconds / 1e9:f} secs"
    return json.dumps(value, default=str)


def _type_of(arrow: pa.DataType) -> SqlType:
    import pyarrow.types as kinds

    if kinds.is_list(arrow):
        if kinds.is_nested(arrow.value_type):
            return t.VARCHAR
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
        rows = _contents(self.catalog, token, caller)
        with QueryEngine(Library((), ()), QueryBudget(terms.limits), database) as duck:
            for part in needed(self.parts, self.query.names(text)):
                duck.define(part.sql)
                filling = rows.get(part.name.partition(".")[2]) if part.name.startswith(f"{TABLES}.") else None
                if filling:
                    _fill(duck, part.name, filling)
            found = duck.query(text, {})
        table, types = _as_language_has_it(found)
        answer = Answer(tuple(found.column_names), types, table, ConsistentSnapshot({}))
        return Answered(answer.names, types, arrow_stream(answer), {}, None, None)


def _fill(duck: QueryEngine, name: str, rows: list[dict[str, object]]) -> None:
    import pyarrow as pa

    # Arrow takes the columns of the first row alone: those that it does not name would be lost in silence.
    assert all(row.keys() == rows[0].keys() for row in rows), name
    duck.define(f"INSERT INTO {name} BY NAME SELECT * FROM rows", pa.Table.from_pylist(rows))


_Rows = list[dict[str, Any]]

_NAMESPACES: Final = {"pg_catalog": 11, "public": 2200, "information_schema": 13_000}
"""Oids as PostgreSQL has them; the last is any that is free."""
_DATABASE_OID: Final = 5
_ROLE_OID: Final = 10
_HEAP: Final = 2
_BTREE: Final = 403
_FIRST_OID: Final = 1 << 30
"""Above every oid that PostgreSQL gives to things of its own."""
_WAYS: Final = {"input": "in", "output": "out", "receive": "recv", "send": "send"}
_WITH_UNDERSCORE: Final = frozenset(("date", "time", "timestamp", "timestamptz", "numeric", "json", "jsonb", "uuid"))
"""Types whose functions are called `date_in`; those of the others `boolin`."""


@dataclass(frozen=True)
class Caller:
    """Who asks, as the functions of PostgreSQL tell it: both names are as the client gave them, and free.

    Attributes:
        settings: of the session, by name.
    """

    database: str
    role: str
    settings: Mapping[str, str]


def _relation_oid(name: str) -> int:
    """The oid of a relation, index or function: made of its name, so that it is the same in every query, and after a
    restart."""
    return _FIRST_OID | (zlib.crc32(name.encode()) & (_FIRST_OID - 1))


def _contents(catalog: Catalog, token: Token, caller: Caller) -> dict[str, _Rows]:
    """{table: its rows} of those that have any; all rows of a table name the same columns, the others have defaults."""
    found: dict[str, _Rows] = {
        "session": [{"database": caller.database, "role": caller.role}],
        "pg_namespace": [{"oid": oid, "nspname": name} for name, oid in _NAMESPACES.items()],
        "pg_database": [{"oid": _DATABASE_OID, "datname": caller.database}],
        "pg_roles": [{"oid": _ROLE_OID, "rolname": caller.role}],
        "pg_settings": [
            {"name": name, "setting": value, "reset_val": value, "boot_val": value}
            for name, value in caller.settings.items()
        ],
        "pg_type": _types(),
        "pg_proc": [{"oid": _relation_oid(name), "proname": name, "prosrc": name} for name in _type_functions()],
        **{name: [] for name in ("pg_class", "pg_attribute", "pg_index", "pg_constraint", "definitions")},
    }
    for definition in catalog.definitions():
        scopes = catalog.name_map.scopes_of(definition.name)
        if not isinstance(definition, InsertQuery) and token.allows("read", *scopes):
            _add(definition, scopes[0], found)
            if isinstance(definition, View):
                sql = shown_text(definition.sql, catalog)
                found["definitions"].append({"relation": _relation_oid(definition.name), "sql": sql})
    for view in catalog.plain.values():
        if token.allows("read", view.name):
            _add_plain(view, shown_text(view.sql, catalog), found)
    return found


def _add_plain(view: PlainView, sql: str, found: dict[str, _Rows]) -> None:
    oid, columns = _relation_oid(view.name), view.columns
    about = {"relname": view.name, "relkind": "v", "relam": 0, "relnatts": len(columns), "relhasindex": False}
    found["pg_class"].append({"oid": oid, **about})
    for number, column in enumerate(columns, 1):
        found["pg_attribute"].append(_attribute(oid, column, number, not_null=False))
    found["definitions"].append({"relation": oid, "sql": sql})


def _add(definition: Source | View, called: str, found: dict[str, _Rows]) -> None:
    oid, relation = _relation_oid(definition.name), visible_relation(definition)
    is_view = isinstance(definition, View)
    key = relation.key if relation.storage == "keyed" else ()
    found["pg_class"].append(
        {
            "oid": oid,
            "relname": called,
            "relkind": "m" if is_view else "r",
            "relam": _HEAP,
            "relnatts": len(definition.columns),
            "relhasindex": bool(key),
        }
    )
    places = {column.name: number for number, column in enumerate(definition.columns, 1)}
    for column in definition.columns:
        not_null = column.name in key
        found["pg_attribute"].append(_attribute(oid, column, places[column.name], not_null=not_null))
    if key:
        _add_key(definition, called, [places[name] for name in key], found)


def _attribute(relation: int, column: Column, number: int, *, not_null: bool) -> dict[str, Any]:
    return {
        "attrelid": relation,
        "attname": column.name,
        "atttypid": oid_of(column.type),
        "attlen": size_of(column.type),
        "attnum": number,
        "atttypmod": modifier_of(column.type),
        "attnotnull": not_null,
    }


def _add_key(definition: Source | View, called: str, places: list[int], found: dict[str, _Rows]) -> None:
    name = f"{called}_pkey"
    relation, index = _relation_oid(definition.name), _relation_oid(f"{definition.name}_pkey")
    about = {"relname": name, "relkind": "i", "relam": _BTREE, "relnatts": len(places), "relhasindex": False}
    found["pg_class"].append({"oid": index, **about})
    for number, place in enumerate(places, 1):
        found["pg_attribute"].append(_attribute(index, definition.columns[place - 1], number, not_null=False))
    zeros = [0] * len(places)
    found["pg_index"].append(
        {
            "indexrelid": index,
            "indrelid": relation,
            "indnatts": len(places),
            "indnkeyatts": len(places),
            "indkey": places,
            "indclass": zeros,
            "indcollation": zeros,
            "indoption": zeros,
        }
    )
    found["pg_constraint"].append(
        {"oid": index, "conname": name, "conrelid": relation, "conindid": index, "conkey": places}
    )


def _types() -> _Rows:
    found: _Rows = []
    for each in (*PLAIN.values(), *OTHERS):
        plain = _type(each.oid, each.name, each.sql, each.size, each.category)
        found.append(plain | {"typarray": each.array, "typelem": 0})
        if each.array:
            array = _type(each.array, f"_{each.name}", f"{each.sql}[]", -1, "A")
            found.append(array | {"typarray": 0, "typelem": each.oid})
    return found


def _type(oid: int, name: str, shown: str, size: int, category: str) -> dict[str, Any]:
    functions = {column: _relation_oid(each) for column, each in _functions_of(name).items()}
    return {"oid": oid, "typname": name, "shown": shown, "typlen": size, "typcategory": category, **functions}


def _functions_of(name: str) -> dict[str, str]:
    """{column of pg_type: the function's name}: drivers know an array by its `array_recv`."""
    stem = "array_" if name.startswith("_") else f"{name}_" if name in _WITH_UNDERSCORE else name
    return {f"typ{way}": f"{stem}{short}" for way, short in _WAYS.items()}


def _type_functions() -> list[str]:
    names = [name for each in (*PLAIN.values(), *OTHERS) for name in (each.name, f"_{each.name}")]
    return sorted({function for name in names for function in _functions_of(name).values()})
