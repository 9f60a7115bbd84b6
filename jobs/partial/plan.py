"""The plan of a partial view: its SELECT over whatever rows it is given, and the routes from its key to those rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.partial.leaves import leaves_of
from strandline.jobs.partial.routes import routes_of
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import relations_of
from strandline.jobs.query.recompute.select import recompute_sql
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View
    from strandline.jobs.model.options import ErrorPolicy
    from strandline.jobs.model.relation import Relation
    from strandline.jobs.partial.leaves import Leaves
    from strandline.jobs.partial.routes import Routes
    from strandline.jobs.query.recompute.text import Fate

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
