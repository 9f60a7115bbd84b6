"""A pull query as DuckDB computes it: its text, and the tables that the text names.

    PullQuery ──recompute──> SELECT a, b FROM (… AS "__o0" …) ORDER BY "__o0" LIMIT 3

A pull query is computed as the view of it would be computed anew; what views keep in `__state` can be read here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.engines.engine import engine_of, listed
from strandline.jobs.model.relation import META_COLUMNS, TOMBSTONE, Relation
from strandline.jobs.model.types import struct
from strandline.jobs.query.logical import outputs_of
from strandline.jobs.query.recompute.select import recompute_sql
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from strandline.jobs.query.logical import PullQuery

_ENGINE: Final = engine_of("duckdb")
_OF_EVENTS: Final = frozenset((*(name for name, _ in META_COLUMNS), TOMBSTONE))


@dataclass(frozen=True)
class Computation:
    """A pull query in DuckDB's text.

    Attributes:
        tables: those that the text names, each a relation with the stored columns that are read of it.
    """

    text: str
    tables: dict[str, Relation]


def computation(pull: PullQuery, limit: int | None) -> Computation:
    """The computation of a pull query; `limit` is the most rows of its answer.

    Raises:
        NotSupported: DuckDB has no function for one of its aggregates.
    """
    text = _in_order(recompute_sql(pull.query, "duckdb", fate="error", nested=pull.nested), pull, limit)
    tables: dict[str, Relation] = {}
    plain: list[str] = []
    for number, relation in enumerate(pull.relations):
        read = _read(relation, text)
        if not read.hidden:
            tables[relation.name] = read
            continue
        stored = f"__stored_{number}"
        tables[stored] = replace(read, columns=(*read.columns, (STATE, struct(*read.hidden))), hidden=())
        plain.append(f"{_ENGINE.name(relation.name)} AS (SELECT {', '.join(listed(read, _ENGINE))} FROM {stored})")
    return Computation(f"WITH {', '.join(plain)} {text}" if plain else text, tables)


def _in_order(text: str, pull: PullQuery, limit: int | None) -> str:
    """The text with ORDER BY, LIMIT and OFFSET, and without the columns that only ORDER BY reads."""
    name = _ENGINE.name
    items = [
        f"{name(each.column)} {'DESC' if each.descending else 'ASC'} NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in pull.order
    ]
    last = f" ORDER BY {', '.join(items)}" if items else ""
    last += f" LIMIT {limit}" if limit is not None else ""
    last += f" OFFSET {pull.offset}" if pull.offset else ""
    hides = len(outputs_of(pull.query)) > pull.shown
    shown = ", ".join(name(column) for column, _ in pull.outputs) if hides else "*"
    return f"SELECT {shown} FROM ({text}) AS __answer{last}" if last or hides else text


def _read(relation: Relation, text: str) -> Relation:
    """The relation with the columns that a text may read: those whose names stand in it; at least one."""
    columns = tuple(each for each in relation.columns if _stands_in(each[0], text))
    hidden = tuple(each for each in relation.hidden if _stands_in(each[0], text))
    return replace(relation, columns=columns or relation.columns[:1], hidden=hidden)


def _stands_in(name: str, text: str) -> bool:
    """True if a column may be read by a text, which has the names that events bring without quotes too."""
    return _ENGINE.name(name) in text or (name in _OF_EVENTS and name in text)
