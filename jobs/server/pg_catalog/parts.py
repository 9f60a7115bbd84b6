"""The tables, views and functions of the system catalog, as SQL; a query has those that it names, and what they need.

To make them all takes a few hundred milliseconds, to make what one query of psql's names a few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

TABLES: Final = "pgc"
"""The schema that stands for pg_catalog: DuckDB has one of that name, which is about DuckDB."""
FUNCTIONS: Final = "pgf"
"""The schema of the functions: DuckDB's own of the same name have another answer."""
INFORMATION: Final = "ischema"
"""The schema that stands for information_schema."""

_FILES: Final = ("pg_catalog.sql", "absent.sql", "functions.sql", "information_schema.sql")
_BEGINNING: Final = re.compile(rf"^(CREATE|INSERT)\s[A-Z ]*?\b((?:{TABLES}|{FUNCTIONS}|{INFORMATION})\.?\w*)", re.M)
_NAMED: Final = re.compile(rf"\b(?:{TABLES}|{FUNCTIONS}|{INFORMATION})\.\w+")


@dataclass(frozen=True)
class CatalogStatement:
    """One statement of the files.

    Attributes:
        name: of what it makes or fills, with its schema; of a schema, that alone.
        needs: the names of other parts in it.
    """

    name: str
    sql: str
    needs: frozenset[str]


@cache
def read_parts() -> tuple[CatalogStatement, ...]:
    """All parts, each after what it needs."""
    found: list[CatalogStatement] = []
    for file in _FILES:
        text = Path(__file__).with_name(file).read_text()
        begins = list(_BEGINNING.finditer(text))
        ends = [*(each.start() for each in begins[1:]), len(text)]
        for begin, end in zip(begins, ends, strict=True):
            sql = text[begin.start() : end]
            found.append(CatalogStatement(begin[2], sql, frozenset(_NAMED.findall(sql)) - {begin[2]}))
    return tuple(found)


def needed(parts: Collection[CatalogStatement], names: Collection[str]) -> list[CatalogStatement]:
    """The parts of these names with all that they need, in the order in which they are made."""
    by_name: dict[str, set[str]] = {}
    for part in parts:
        by_name.setdefault(part.name, set()).update(part.needs)
    todo, wanted = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += by_name.get(name, ())
    return [part for part in parts if "." not in part.name or part.name in wanted]
