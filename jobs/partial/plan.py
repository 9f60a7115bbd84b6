"""The plan of a partial view: its SELECT over whatever rows it is given, and the routes from its key to those rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from sqlglot import exp

from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Block, From, Query, Recursion, SetOperation, outputs_of, relations_of
from strandline.jobs.query.recompute import recompute_sql
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.trees import conjuncts
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import ErrorPolicy, View
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.recompute_context import Fate


_FATES: Final[dict[ErrorPolicy, Fate]] = {"dead_letter": "left out", "stop": "error", "null": "null"}
"""Nothing is stored of a partial view: where a view would stop, the reader of the keys gets the error."""
KEYS = "__keys"
"""The relation of the keys that are asked for, in the text of an upquery."""


@dataclass(frozen=True)
class PartialPlan:
    """A partial view, planned.

    Attributes:
        relation: the view as a query sees it.
        sql: an upquery's SELECT, over the relations of the leaves and `KEYS`; ordered by the view's key.
        columns: of each relation those that the SELECT reads.
    """

    relation: Relation
    leaves: Leaves
    routes: Routes
    sql: str
    columns: Mapping[str, tuple[str, ...]]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key that a reader must give."""
        return self.routes.key

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables that are read."""
        return tuple(self.columns)

    def reads_hidden(self, table: str) -> bool:
        """True if the SELECT reads columns of that table which its changelog does not show."""
        relation = next(each for each in self.leaves.relations if each.name == table)
        return any(name in self.columns[table] for name, _ in relation.hidden)

    @property
    def key_schema(self) -> pa.Schema:
        """The columns of `KEYS`."""
        return pa.schema([(name, self.relation.type_of(name).arrow()) for name in self.key])

    @property
    def schema(self) -> pa.Schema:
        """The visible columns."""
        return pa.schema([(name, sql_type.arrow()) for name, sql_type in self.relation.columns])


def partial_plan(view: View, catalog: Catalog) -> PartialPlan:
    """The plan of a view that is read by key.

    Raises:
        InvalidQuery: no column of its key selects rows of what it reads.
        NotSupported: DuckDB has no function for one of its aggregates.
        SqlError: the query no longer fits its inputs.
    """
    relation = visible_relation(view)
    query = query_of(view, catalog)
    leaves = leaves_of(query)
    routes = routes_of(leaves, [(name, relation.type_of(name)) for name in relation.key])
    if not routes.key:
        raise InvalidQuery(
            sentence(
                "'{}' cannot be partial: no column of its key comes as it is from a column of what it reads",
                Name(view.name),
            ),
            hint="group by an INT, BIGINT or VARCHAR column of an input and select it; or leave STATE = 'partial' out",
        )
    name = engine_of("duckdb").name
    same = " AND ".join(f"__rows.{name(each)} IS NOT DISTINCT FROM {KEYS}.{name(each)}" for each in routes.key)
    order = ", ".join(f"__rows.{name(each)} NULLS FIRST" for each in relation.key)
    computed = recompute_sql(query, "duckdb", fate=_FATES[view.maintenance.errors])
    sql = f"SELECT * FROM ({computed}) AS __rows SEMI JOIN {KEYS} ON {same} ORDER BY {order}"
    columns = {each.name: _read(each, computed) for each in relations_of(query)}
    return PartialPlan(relation, leaves, routes, sql, columns)


def _read(relation: Relation, sql: str) -> tuple[str, ...]:
    """The columns that a text reads of a relation, at least: a name that does not occur in it is not read."""
    names = [name for name, _ in (*relation.columns, *relation.hidden)]
    return tuple(name for name in names if name in sql or name.replace('"', '""') in sql) or tuple(names[:1])


# Routes: how the values of a view's key select the rows of each leaf that matter for it.
#
#     key (category) ──own──> 1: info where category = …  ──via product──> 0: visits where product is one of theirs
#
# One rule is used in both directions. Downwards, an upquery reads of each leaf the rows on the key's route. Upwards,
# a changed row of a leaf can change the rows of those keys alone on whose route it is, before the change or after it.
# What is no NULL in the key is on some route; a key with a NULL has none, so all rows are read for it, and each
# change is taken to change it.

_SELECTING: Final = (BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR)
"""The types whose values the reader of files compares exactly as DuckDB does."""


@dataclass(frozen=True)
class Route:
    """The way to the rows of one leaf; one of `own` and `origins` is empty, both are where there is no way.

    Attributes:
        own: (column of the leaf, place in the key): the rows in which all these are equal.
        column, origins: the rows whose column has a value of one of these columns, in rows on their own routes.
    """

    leaf: int
    own: tuple[tuple[str, int], ...] = ()
    column: str = ""
    origins: tuple[Place, ...] = ()

    @property
    def there(self) -> bool:
        """False if all rows of the leaf matter for every key."""
        return bool(self.own or self.origins)


@dataclass(frozen=True)
class Routes:
    """The routes of a view.

    Attributes:
        key: the columns of the view's key whose values select rows, in the order of the key.
        routes: one for each leaf, each after those that it goes through.
    """

    key: tuple[str, ...]
    routes: tuple[Route, ...]

    def of(self, leaf: int) -> Route:
        """The route to a leaf."""
        return next(route for route in self.routes if route.leaf == leaf)


def routes_of(leaves: Leaves, key: Sequence[tuple[str, SqlType]]) -> Routes:
    """The routes from a key to all leaves.

    Args:
        key: the columns of the view's key, with their types.

    Returns:
        With an empty key when none of its columns selects rows.
    """
    starts = {name: _starts(leaves, name, sql_type) for name, sql_type in key}
    selecting = tuple(name for name, _ in key if starts[name])
    bound = {place: number for number, name in enumerate(selecting) for place in starts[name]}
    _spread(bound, leaves.edges)
    own: dict[int, list[tuple[str, int]]] = {}
    for (leaf, column), number in bound.items():
        own.setdefault(leaf, []).append((column, number))
    found = {leaf: Route(leaf, own=tuple(columns)) for leaf, columns in own.items()}
    while (step := _next(found, leaves.edges)) is not None:
        found[step.leaf] = step
    rest = (Route(leaf) for leaf in range(len(leaves.relations)) if leaf not in found)
    return Routes(selecting, (*found.values(), *rest))


def _starts(leaves: Leaves, name: str, sql_type: SqlType) -> list[Place]:
    """The columns that a key column's values are put on."""
    if sql_type.base not in _SELECTING:
        return []
    places = leaves.outputs[name].places
    return [place for place in places if leaves.relations[place[0]].type_of(place[1]) == sql_type]


def _spread(bound: dict[Place, int], edges: Iterable[Edge]) -> None:
    """Add the columns that equal a key's column because a join says so."""
    before = -1
    while before != len(bound):
        before = len(bound)
        for edge in edges:
            numbers = {bound.get(place) for place in edge.origins}
            number = numbers.pop() if len(numbers) == 1 else None
            if number is not None:
                bound.setdefault(edge.target, number)


def _next(found: Mapping[int, Route], edges: Iterable[Edge]) -> Route | None:
    """A route to one more leaf, through leaves that have one."""
    for edge in edges:
        leaf, column = edge.target
        if leaf not in found and all(place[0] in found for place in edge.origins):
            return Route(leaf, column=column, origins=edge.origins)
    return None


# The leaves of a query: each place where it reads a relation, and how the rows of one leaf select those of another.
#
#     SELECT i.category, COUNT(*) FROM visits v JOIN info i ON v.product = i.product GROUP BY i.category
#
#     leaves    0: visits   1: info          outputs   category: column category of leaf 1
#     edges     1.product selects 0.product, and 0.product selects 1.product
#
# An edge says: of the rows of its target only those matter whose column has one of the values that the column has in
# the rows of its origin that matter. It holds of an equality in the condition of a join, in both directions of an
# inner one. Of a left, semi or anti join it holds towards the joined input alone, since rows that match nothing
# matter on the other side; of a right or full join it does not hold. NULL equals nothing, and is no value here.

Place = tuple[int, str]
"""A column of a leaf: the leaf's number, and the column's name."""


@dataclass(frozen=True)
class Origin:
    """The columns of leaves that a column's values come from, as they are.

    Attributes:
        complete: False if values may come from elsewhere as well: from an expression, or a branch of a UNION.
    """

    places: tuple[Place, ...]
    complete: bool


NOWHERE: Final = Origin((), complete=False)


@dataclass(frozen=True)
class Edge:
    """The rows of `target`'s leaf that matter have, in that column, a value of one of the columns of `origins`."""

    origins: tuple[Place, ...]
    target: Place


@dataclass(frozen=True)
class Leaves:
    """A query as its leaves.

    Attributes:
        relations: of each leaf, by its number.
        outputs: the origin of each visible column. A condition on one that has an origin may as well be put on it: it
            is a column of groups or of partitions, or no rows are combined.
    """

    relations: tuple[Relation, ...]
    edges: tuple[Edge, ...]
    outputs: Mapping[str, Origin]


def leaves_of(query: Query) -> Leaves:
    """The leaves of a query, in the order of its text."""
    walk = _Walk()
    outputs = walk.query(query)
    return Leaves(tuple(walk.relations), tuple(walk.edges), outputs)


class _Walk:
    """What was found so far on the way through a query and its subqueries."""

    def __init__(self) -> None:
        self.relations: list[Relation] = []
        self.edges: list[Edge] = []

    def query(self, query: Query) -> dict[str, Origin]:
        """The origin of each visible column."""
        if isinstance(query, Block):
            parts = {part.alias: self._source(part) for part in query.inputs}
            for part in query.inputs[1:]:
                self._joined(part, parts)
            return {each.name: _origin(each.expression, query, parts) for each in query.outputs}
        if isinstance(query, Recursion):
            raise NotSupported(
                "WITH RECURSIVE in a partial view is not supported: what has a key follows from all other rows",
                hint="leave STATE = 'partial' out",
            )
        return self._set_operation(query)

    def _set_operation(self, query: SetOperation) -> dict[str, Origin]:
        branches = [list(self.query(branch).values()) for branch in query.branches]
        found = {}
        for place, (name, _) in enumerate(outputs_of(query)):
            origins = [branch[place] for branch in branches]
            places = tuple(each for origin in origins for each in origin.places)
            found[name] = Origin(places, all(origin.complete for origin in origins))
        return found

    def _source(self, part: From) -> dict[str, Origin]:
        if not isinstance(part.source, Relation):
            return self.query(part.source)
        number = len(self.relations)
        self.relations.append(part.source)
        return {name: Origin(((number, name),), complete=True) for name, _ in part.source.columns}

    def _joined(self, part: From, parts: Mapping[str, Mapping[str, Origin]]) -> None:
        """Note the edges of one join's condition."""
        if part.join in ("right", "full"):
            return
        for term in conjuncts(part.on):
            sides = (term.this, term.expression) if isinstance(term, exp.EQ) else ()
            columns = [side for side in sides if isinstance(side, exp.Column) and side.table]
            if len(columns) != 2 or sum(column.table == part.alias for column in columns) != 1:
                continue
            joined, earlier = sorted(columns, key=lambda column: column.table != part.alias)
            near, far = (parts[each.table].get(each.name, NOWHERE) for each in (joined, earlier))
            self._edges(far, near)
            if part.join == "inner":
                self._edges(near, far)

    def _edges(self, origin: Origin, target: Origin) -> None:
        if not origin.complete:
            return
        types = {self._type(place) for place in origin.places}
        # Values are compared by the reader of files, as they are stored: only within one type.
        self.edges += [Edge(origin.places, place) for place in target.places if types == {self._type(place)}]

    def _type(self, place: Place) -> object:
        return self.relations[place[0]].type_of(place[1])


def _origin(output: exp.Expression, block: Block, parts: Mapping[str, Mapping[str, Origin]]) -> Origin:
    """The origin of an output."""
    if not isinstance(output, exp.Column):
        return NOWHERE
    if block.analytic and output not in block.partition:
        return NOWHERE
    if block.group is not None:
        key = next((each.expression for each in block.group if each.name == output.name), None)
        if not isinstance(key, exp.Column):
            return NOWHERE
        output = key
    return parts[output.table].get(output.name, NOWHERE) if output.table else NOWHERE


# EXPLAIN of a partial view: how a key is computed, and what a change of its inputs does to the keys that are kept.


def explain_partial(view: View, catalog: Catalog, *, upquery: bool) -> str:
    """The routes of a partial view in words.

    Args:
        upquery: add the SQL of an upquery.

    Raises:
        SqlError: the query no longer fits its inputs.
    """
    plan = partial_plan(view, catalog)
    lines = [
        *catalog.name_map.legend([view.name, *(each.name for each in plan.leaves.relations)]),
        f"partial {view.kind} {quote(view.name)} (pipeline '{view.pipeline}', fingerprint {view.fingerprint})",
        f"  {view.query}",
        "",
        f"nothing is stored; a reader gives {', '.join(plan.key)}, and keeps keys in {view.maintenance.cache_bytes:,} "
        "bytes at most",
        "",
    ]
    lines += [line for route in plan.routes.routes for line in _route(route, plan)]
    if upquery:
        lines += ["", "a key that is not kept is computed by", "", f"    {plan.sql}"]
    return "\n".join(lines)


def _route(route: Route, plan: PartialPlan) -> list[str]:
    name = quote(plan.leaves.relations[route.leaf].name)
    if route.own:
        same = " and ".join(f"{column} = {plan.key[place]}" for column, place in route.own)
        return [f"{name}: rows with {same}", "  a change drops the keys that it names"]
    if route.origins:
        above = " or ".join(f"{quote(plan.leaves.relations[leaf].name)}.{column}" for leaf, column in route.origins)
        return [
            f"{name}: rows whose {route.column} is an {above} of the rows before",
            f"  a change drops the keys that it leads to by {above}, before it or after",
        ]
    return [f"{name}: all rows", "  a change drops all keys: none of its columns leads to the key"]
