"""The oracle: what a table must hold, computed by another engine.

A projection at an epoch equals its own SELECT, run by DuckDB over its inputs at the version vector in its commit. The
inputs that are projections themselves are checked the same way, so by induction everything equals its SQL over the
event logs. None of the engine's rules or accumulators is used here: `jobs.query.recompute` says the whole query
as one plain SELECT, in DuckDB's own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.model.definitions import InsertQuery, Semantics, Source, View
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Query, Recursion, SetOperation, relations_of
from strandline.jobs.query.recompute import recompute_sql
from strandline.jobs.query.recompute_context import FrozenJoin
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.python_values import python_values
from strandline.state_store.tablespec import STATE
from tests.support.rule_harness import comparable

Rows = Counter[tuple[Any, ...]]


# --- the queries --------------------------------------------------------------------------------------------------


def semantics_of(definition: View | InsertQuery) -> Semantics:
    """WITH (SEMANTICS=…)."""
    return "ksql" if isinstance(definition, View) and definition.options.get("SEMANTICS") == "ksql" else "sql"


@dataclass(frozen=True)
class Recomputation:
    """One SELECT that must give the visible columns of a table, or a part of its rows; its relations by their names.

    Attributes:
        looked_up: of the relations those that events look up as they are at the time: past rows of them count.
    """

    owner: str
    sql: str
    relations: tuple[Relation, ...]
    looked_up: frozenset[str] = frozenset()


def recomputations(name: str, catalog: Catalog, frozen: FrozenJoin | None = None) -> list[Recomputation]:
    """What brings the rows of a keyed source, of a view, or of the queries that insert into a stream.

    Args:
        frozen: as in `jobs.query.recompute.recompute_sql`.
    """
    definition = catalog.get(name)
    names = [f'"{column.name}"' for column in definition.columns] if not isinstance(definition, InsertQuery) else []
    if isinstance(definition, Source) and definition.kind == "table":
        log = event_log(definition)
        return [Recomputation(name, f"SELECT {', '.join(names)} FROM ({_newest(definition)})", (log,))]
    queries: list[View | InsertQuery] = [definition] if isinstance(definition, View) else []
    queries += catalog.insert_queries(name)
    found = []
    for each in queries:
        query = query_of(each, catalog)
        sql = recompute_sql(query, "duckdb", fate="null", semantics=semantics_of(each), frozen=frozen)
        text = f"FROM ({sql}) AS __rows({', '.join(names)})"
        found.append(Recomputation(each.name, text, relations_of(query), frozenset(_looked_up(query))))
    return found


def _looked_up(query: Query) -> Iterator[str]:
    """The names of the keyed relations that events look up."""
    if isinstance(query, SetOperation | Recursion):
        for branch in query.branches:
            yield from _looked_up(branch)
        return
    for part in query.inputs:
        if not isinstance(part.source, Relation):
            yield from _looked_up(part.source)
        elif part.frozen and part.source.storage == "keyed":
            yield part.source.name


def _newest(source: Source) -> str:
    """Of each key the newest event, unless it says that the key is gone."""
    keys = ", ".join(f'"{key}"' for key in source.key)
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY _stream_time DESC, _partition DESC, _offset DESC)"
    return f'SELECT * FROM (SELECT * FROM "{event_log(source).name}" QUALIFY {newest} = 1) WHERE NOT _tombstone'


def difference(definition: View | Source, actual: Rows, expected: Rows) -> str:
    """What is wrong with the rows of a table, in words; empty when nothing is.

    A group that fell to zero stays with SEMANTICS='ksql': a row too many is right there when no other has its key, and
    when a part of the key is not visible.
    """
    more, less = actual - expected, expected - actual
    if isinstance(definition, View) and semantics_of(definition) == "ksql" and definition.kind == "table":
        names = [column.name for column in definition.columns]
        if not set(definition.row_key) <= set(names):
            more = Counter()
        places = [names.index(key) for key in definition.row_key if key in names]
        keys = {tuple(row[at] for at in places) for row in expected}
        more = Counter({row: n for row, n in more.items() if tuple(row[at] for at in places) in keys})
    if not more and not less:
        return ""
    return f"'{definition.name}' ({', '.join(c.name for c in definition.columns)}): too many {more}, missing {less}"


# --- over a lake --------------------------------------------------------------------------------------------------


def visible(lake: LakeLayout, table: str, columns: Sequence[str], version: int | None = None) -> Rows:
    """The rows of a table as a multiset of comparable tuples."""
    return multiset(_table(reader.read_rows(lake.table(table), version=version, columns=list(columns))), columns)


def multiset(rows: pa.Table, columns: Sequence[str]) -> Rows:
    values = ([comparable(value) for value in python_values(rows[column], maps=None)] for column in columns)
    return Counter(zip(*values, strict=True)) if columns else Counter({(): rows.num_rows})


def counted(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Rows:
    """Rows as a multiset of comparable tuples."""
    return Counter(tuple(comparable(row[column]) for column in columns) for row in rows)


def expected(lake: LakeLayout, catalog: Catalog, name: str) -> Rows:
    """What the projection or keyed table `name` must hold at the vector of its last commit.

    What an event saw of a table that it joined is taken from the whole history: no event of the table may be older
    than one of the stream that was there before it.
    """
    definition = catalog.get(name)
    assert not isinstance(definition, InsertQuery)
    columns = [column.name for column in definition.columns]
    head = reader.head(lake.table(name))
    assert head is not None, f"{name} has no commit"
    vector = flat_vector(lake, head.record.versions)
    total: Rows = Counter()
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for each in recomputations(name, catalog):
            own = {key.removeprefix(f"{each.owner}/"): version for key, version in vector.items()}
            total += multiset(_run(db, lake, each, own), columns)
    return total


def flat_vector(lake: LakeLayout, vector: Mapping[str, int]) -> dict[str, int]:
    """The vector over the view's own inputs: an inner stage stands for what it reads (at rest: its head's vector).

    A stage that views share may have been brought further than this view.
    """
    flat: dict[str, int] = {}
    for name, version in vector.items():
        if name.startswith("shared__"):
            found = flat_vector(lake, reader.record_at(lake.table(name), version).versions)
        elif "__stage_" in name:
            head = reader.head(lake.table(name))
            assert head is not None
            found = flat_vector(lake, head.record.versions)
        else:
            found = {name: version}
        # A stage whose rows do not change makes no commit, so its vector may be behind: the newest one said counts.
        flat |= {each: max(at, flat.get(each, at)) for each, at in found.items()}
    return flat


def _run(
    db: duckdb.DuckDBPyConnection, lake: LakeLayout, recomputation: Recomputation, vector: Mapping[str, int]
) -> pa.Table:
    texts = []
    for number, each in enumerate(recomputation.relations):
        stored = [*(name for name, _ in each.columns), *([STATE] if each.hidden else [])]
        rows = reader.read_rows(lake.table(each.name), version=vector[each.name], columns=stored)
        db.register(f"__input_{number}", _table(rows))
        hidden = [f'{STATE}."{name}" AS "{name}"' for name, _ in each.hidden]
        listed = ", ".join([*(f'"{name}"' for name, _ in each.columns), *hidden])
        texts.append(f'"{each.name}" AS (SELECT {listed} FROM __input_{number})')
    sql = f"WITH {', '.join(texts)} {recomputation.sql}" if texts else recomputation.sql
    return db.sql(sql).to_arrow_table()


def _table(rows: pa.Table | pa.RecordBatchReader) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else rows.read_all()
