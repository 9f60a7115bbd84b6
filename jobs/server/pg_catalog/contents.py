"""The rows of the system catalog: the relations of the lake that a token may read, as PostgreSQL would describe them.

A stream or table with a topic is a table (`r`), a view a materialized view (`m`); a key is a primary key.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.catalog.renamed_text import shown_text
from strandline.jobs.model.definitions import InsertQuery, View
from strandline.jobs.server.pg_values.wire_types import OTHERS, PLAIN, modifier_of, oid_of, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Column, PlainView, Source
    from strandline.jobs.server.access.tokens import Token

Rows = list[dict[str, Any]]

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


def relation_oid(name: str) -> int:
    """The oid of a relation, index or function: made of its name, so that it is the same in every query, and after a
    restart."""
    return _FIRST_OID | (zlib.crc32(name.encode()) & (_FIRST_OID - 1))


def contents(catalog: Catalog, token: Token, caller: Caller) -> dict[str, Rows]:
    """{table: its rows} of those that have any; all rows of a table name the same columns, the others have defaults."""
    found: dict[str, Rows] = {
        "session": [{"database": caller.database, "role": caller.role}],
        "pg_namespace": [{"oid": oid, "nspname": name} for name, oid in _NAMESPACES.items()],
        "pg_database": [{"oid": _DATABASE_OID, "datname": caller.database}],
        "pg_roles": [{"oid": _ROLE_OID, "rolname": caller.role}],
        "pg_settings": [
            {"name": name, "setting": value, "reset_val": value, "boot_val": value}
            for name, value in caller.settings.items()
        ],
        "pg_type": _types(),
        "pg_proc": [{"oid": relation_oid(name), "proname": name, "prosrc": name} for name in _type_functions()],
        **{name: [] for name in ("pg_class", "pg_attribute", "pg_index", "pg_constraint", "definitions")},
    }
    for definition in catalog.definitions():
        scopes = catalog.name_map.scopes_of(definition.name)
        if not isinstance(definition, InsertQuery) and token.allows("read", *scopes):
            _add(definition, scopes[0], found)
            if isinstance(definition, View):
                sql = shown_text(definition.sql, catalog)
                found["definitions"].append({"relation": relation_oid(definition.name), "sql": sql})
    for view in catalog.plain.values():
        if token.allows("read", view.name):
            _add_plain(view, shown_text(view.sql, catalog), found)
    return found


def _add_plain(view: PlainView, sql: str, found: dict[str, Rows]) -> None:
    oid, columns = relation_oid(view.name), view.columns
    about = {"relname": view.name, "relkind": "v", "relam": 0, "relnatts": len(columns), "relhasindex": False}
    found["pg_class"].append({"oid": oid, **about})
    for number, column in enumerate(columns, 1):
        found["pg_attribute"].append(_attribute(oid, column, number, not_null=False))
    found["definitions"].append({"relation": oid, "sql": sql})


def _add(definition: Source | View, called: str, found: dict[str, Rows]) -> None:
    oid, relation = relation_oid(definition.name), visible_relation(definition)
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


def _add_key(definition: Source | View, called: str, places: list[int], found: dict[str, Rows]) -> None:
    name = f"{called}_pkey"
    relation, index = relation_oid(definition.name), relation_oid(f"{definition.name}_pkey")
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


def _types() -> Rows:
    found: Rows = []
    for each in (*PLAIN.values(), *OTHERS):
        plain = _type(each.oid, each.name, each.sql, each.size, each.category)
        found.append(plain | {"typarray": each.array, "typelem": 0})
        if each.array:
            array = _type(each.array, f"_{each.name}", f"{each.sql}[]", -1, "A")
            found.append(array | {"typarray": 0, "typelem": each.oid})
    return found


def _type(oid: int, name: str, shown: str, size: int, category: str) -> dict[str, Any]:
    functions = {column: relation_oid(each) for column, each in _functions_of(name).items()}
    return {"oid": oid, "typname": name, "shown": shown, "typlen": size, "typcategory": category, **functions}


def _functions_of(name: str) -> dict[str, str]:
    """{column of pg_type: the function's name}: drivers know an array by its `array_recv`."""
    stem = "array_" if name.startswith("_") else f"{name}_" if name in _WITH_UNDERSCORE else name
    return {f"typ{way}": f"{stem}{short}" for way, short in _WAYS.items()}


def _type_functions() -> list[str]:
    names = [name for each in (*PLAIN.values(), *OTHERS) for name in (each.name, f"_{each.name}")]
    return sorted({function for name in names for function in _functions_of(name).values()})
