"""Pull queries over whatever a query can name: stored tables, and partial views by key.

An upquery gives the rows of some keys of a partial view, computed from its inputs at the versions of one cut.

keys ──route──> rows of leaf 1 ──route──> rows of leaf 0 ──> the view's SELECT, in DuckDB ──> rows of those keys
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import KEYS, partial_plan
from strandline.jobs.serve import pull as stored
from strandline.jobs.serve.catalogued import check_stored
from strandline.jobs.serve.consistent_snapshot import newest_snapshot
from strandline.jobs.serve.errors import KeyRequired, TooLarge
from strandline.jobs.serve.pull import part_predicate
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import Rows, python_rows
from strandline.jobs.serve.terms import FREELY, NO_LIMITS, QueryBudget, QueryLimits
from strandline.jobs.sql.dialect import quote
from strandline.state_store.delta import reader
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python import Library
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.partial.plan import PartialPlan, Route
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, Pinned
    from strandline.jobs.serve.pull import Answer, PlannedPull
    from strandline.jobs.serve.query_engine import QueryDatabase
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import LakeLayout


# The rows of leaves, read at the versions of one cut, and no more of them than a selection of values asks for.

MOST_VALUES: Final = 10_000
"""Of one column. To compare each row with a longer list costs more than to compute with the rows that it leaves out."""

Selection = dict[str, frozenset[Any]]
"""{column: the values it may have}; none: all rows."""


class CutReader:
    """The tables of one cut.

    Args:
        spent: told of every batch that is read.
    """

    def __init__(self, lake: LakeLayout, cut: ConsistentSnapshot, spent: QueryBudget) -> None:
        self._lake = lake
        self._cut = cut
        self._spent = spent

    def rows(self, relation: Relation, columns: Sequence[str], selection: Selection) -> pa.Table:
        """At least the rows that the selection allows, with these columns; hidden ones among them are plain ones here.

        Raises as `state_store.delta.reader.scan`; TimeLimit, TooLarge: more is read than may be.
        """
        schema = pa.schema([(name, relation.type_of(name).arrow()) for name in columns])
        version = self._cut.version(relation.name)
        if version is None or any(not values for values in selection.values()):
            return pa.Table.from_batches([], schema)
        shown = {name for name, _ in relation.columns}
        stored = [name for name in columns if name in shown]
        stored += [STATE] if len(stored) < len(columns) else []
        short = {name: values for name, values in selection.items() if len(values) <= MOST_VALUES}
        batches = reader.scan(self._lake.table(relation.name), version, stored, short or None)
        plain = [self._plain(batch, schema, shown) for batch in self._spent.reading(iter(batches))]
        return pa.Table.from_batches(plain, schema)

    def _plain(self, batch: pa.RecordBatch, schema: pa.Schema, shown: set[str]) -> pa.RecordBatch:
        arrays = [
            batch.column(field.name) if field.name in shown else pc.struct_field(batch.column(STATE), field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
        )


def values_of(tables: Iterable[tuple[pa.Table, str]]) -> frozenset[Any]:
    """The values of columns of tables, each once, without NULL."""
    found: set[Any] = set()
    for table, column in tables:
        found.update(pc.unique(table.column(column)).to_pylist())
    return frozenset(found - {None})


def _selection_of(selections: Sequence[Selection]) -> Selection:
    """One selection that allows every row that one of these does."""
    first = selections[0]
    if all(each == first for each in selections):
        return first
    if all(len(each) == 1 and each.keys() == first.keys() for each in selections):
        return {name: frozenset[Any]().union(*(each[name] for each in selections)) for name in first}
    return {}


Key = tuple[Any, ...]
"""The values of `PartialPlan.key`, as Arrow's `to_pylist` gives them."""


class Upqueries:
    """The upqueries of one view. Any thread may ask.

    Args:
        functions: those that users wrote.
        database: that they are computed in, see `QueryEngine`.
    """

    def __init__(
        self,
        plan: PartialPlan,
        lake: LakeLayout,
        functions: Library,
        limits: QueryLimits = NO_LIMITS,
        database: QueryDatabase | None = None,
    ) -> None:
        self._plan = plan
        self._database = database
        self._lake = lake
        self._functions = functions
        self._limits = limits

    def rows(self, keys: Sequence[Key], cut: ConsistentSnapshot, spent: QueryBudget | None = None) -> pa.Table:
        """The rows of these keys, ordered by the view's key; none for a key that the view does not have.

        Args:
            cut: of the view's inputs.
            spent: of a query that this is a part of.

        Raises:
            InvalidQuery: an expression fails over the rows that are read.
            VersionGone: a version of the cut is no longer kept. Ask again at a newer one.
            TimeLimit, TooLarge: it takes more than it may.
            CorruptState: an input is broken.
        """
        plan = self._plan
        spent = spent if spent is not None else QueryBudget(self._limits)
        inputs = self._inputs(keys, CutReader(self._lake, cut, spent))
        columns = list(zip(*keys, strict=True)) if keys else [() for _ in plan.key]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, plan.key_schema, strict=True)]
        with QueryEngine(self._functions, spent, self._database) as duck:
            found = duck.query(plan.sql, {**inputs, KEYS: pa.Table.from_arrays(arrays, schema=plan.key_schema)})
        return found.cast(plan.schema)

    def _inputs(self, keys: Sequence[Key], tables: CutReader) -> dict[str, pa.Table]:
        """{relation: its rows that matter for the keys, and maybe more}."""
        plan = self._plan
        selections: dict[int, Selection] = {}
        read: dict[int, pa.Table] = {}
        for route in plan.routes.routes:
            selections[route.leaf] = self._selection(route, keys, read)
            relation = plan.leaves.relations[route.leaf]
            names = list(dict.fromkeys([*plan.columns[relation.name], *self._asked(route.leaf)]))
            read[route.leaf] = tables.rows(relation, names, selections[route.leaf])
        found = {}
        for name in plan.inputs:
            leaves = [leaf for leaf, relation in enumerate(plan.leaves.relations) if relation.name == name]
            # A relation that is read in several places is one table to the SELECT: the rows of all of them.
            wanted = _selection_of([selections[leaf] for leaf in leaves])
            known = next((read[leaf] for leaf in leaves if selections[leaf] == wanted), None)
            relation = plan.leaves.relations[leaves[0]]
            found[name] = known if known is not None else tables.rows(relation, plan.columns[name], wanted)
        return found

    def _selection(self, route: Route, keys: Sequence[Key], read: dict[int, pa.Table]) -> Selection:
        if any(None in key for key in keys) or not route.there:
            return {}
        if route.own:
            return {column: frozenset(key[place] for key in keys) for column, place in route.own}
        return {route.column: values_of((read[leaf], column) for leaf, column in route.origins)}

    def _asked(self, leaf: int) -> list[str]:
        """The columns of a leaf that other leaves are selected by."""
        return [column for route in self._plan.routes.routes for origin, column in route.origins if origin == leaf]


# What a SELECT asks of a partial view: the keys that its WHERE names.

MOST_KEYS: Final = 10_000
"""Of one query. Who wants more of a view at once wants it stored."""


@dataclass(frozen=True)
class AskedKeys:
    """The keys of a partial view that a query reads."""

    plan: PartialPlan
    keys: list[Key]


def asked(pull: PullQuery, predicate: Predicate | None, catalog: Catalog) -> AskedKeys | None:
    """The keys that a query asks of a partial view; None when it reads none.

    Args:
        predicate: of the only table of the query, as `jobs.serve.pull.key_predicate` finds it.

    Raises:
        KeyRequired: its WHERE does not give all columns of the view's key, or it reads the view twice.
        TooLarge: it names more keys than a query may.
    """
    definitions = [catalog.find(relation.name) for relation in pull.relations]
    views = [found for found in definitions if isinstance(found, View) and found.partial]
    if not views:
        return None
    plan = partial_plan(views[0], catalog)
    given = predicate or part_predicate(pull, views[0].name) or {}
    if len(views) > 1:
        given = {}
    if not given.keys() >= set(plan.key):
        raise key_required(plan, next((name for name in plan.key if name not in given), plan.key[0]))
    keys = list(product(*(dict.fromkeys(given[name]) for name in plan.key)))
    if len(keys) > MOST_KEYS:
        raise TooLarge(
            sentence("the query names {} keys of '{}'", f"{len(keys):,}", Name(plan.relation.name)),
            hint=f"at most {MOST_KEYS:,}",
        )
    return AskedKeys(plan, keys)


def key_required(plan: PartialPlan, missing: str) -> KeyRequired:
    """The error of a reader that does not give a column of the key."""
    name, where = plan.relation.name, " AND ".join(f"{each} = …" for each in plan.key)
    return KeyRequired(
        sentence("'{}' is a partial view, read by key: '{}' is not given", Name(name), missing),
        hint=sentence(
            "SELECT … FROM {} WHERE {}, with constants; or create it without STATE = 'partial'",
            Name(name, quote),
            where,
        ),
    )


def pull(statement: Select, catalog: Catalog, lake: LakeLayout, functions: Library) -> Rows:
    """Answer a SELECT with Python values; arguments and errors as of `answer`."""
    found = answer(stored.plan_pull(statement, catalog, lake), catalog, lake, functions)
    return Rows(found.names, python_rows(found.table, found.types))


def answer(
    plan: PlannedPull,
    catalog: Catalog,
    lake: LakeLayout,
    functions: Library,
    terms: Terms = FREELY,
    database: QueryDatabase | None = None,
) -> Answer:
    """Answer a SELECT, which may read partial views. Arguments and errors as of `jobs.serve.pull.answer`."""
    computing = _Computing(catalog, lake, functions, terms.pinned, database)
    return stored.answer(plan, catalog, lake, functions, terms, computing, database)


class _Computing:
    """The partial views of a lake, computed for one query, which keeps nothing of them."""

    def __init__(
        self,
        catalog: Catalog,
        lake: LakeLayout,
        functions: Library,
        pinned: Pinned | None,
        database: QueryDatabase | None,
    ) -> None:
        self._pinned = pinned
        self._database = database
        self._catalog = catalog
        self._lake = lake
        self._functions = functions

    def tables(
        self, pull: PullQuery, predicate: Predicate | None, spent: QueryBudget
    ) -> tuple[dict[str, pa.Table], ConsistentSnapshot] | None:
        """The rows of the keys that a query asks of a partial view.

        Raises:
            KeyRequired, TooLarge: as of `jobs.partial.pull.asked`; otherwise as of `Upqueries.rows`.
        """
        wanted = asked(pull, predicate, self._catalog)
        if wanted is None:
            return None
        joined = [relation.name for relation in pull.relations if relation.name != wanted.plan.relation.name]
        check_stored(joined, self._catalog)
        inputs = list(dict.fromkeys((*wanted.plan.inputs, *joined)))
        cut = newest_snapshot(inputs, self._lake) if self._pinned is None else self._pinned.cut(inputs, self._lake)
        upqueries = Upqueries(wanted.plan, self._lake, self._functions, database=self._database)
        rows = upqueries.rows(wanted.keys, cut, spent)
        return {wanted.plan.relation.name: rows}, cut
