"""The adapter: a model is a definition of the lake, a schema is a pipeline, and dbt's questions are answered from the
catalog."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import AdapterConfig, BaseAdapter, BaseRelation, available
from dbt.adapters.base.column import Column as BaseColumn
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.base.relation import EventTimeFilter
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.strandline.connections import StrandlineConnectionManager
from dbt.adapters.strandline.seeds import written
from dbt.adapters.strandline.snapshots import Snapshot
from dbt.adapters.strandline.storage import quoted
from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import strandline

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig

_CATALOG = (
    *("table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner"),
    *("column_name", "column_index", "column_type", "column_comment"),
)
_NOT_IN_PLACE = ("sql.name_in_use", "sql.not_supported")
"""Codes of what CREATE OR REPLACE refuses where the view would be accepted under a name of its own."""
_REHEARSED = "dbt_rehearsed"
"""Name under which a definition is tried that cannot be tried under its own."""
_KINDS = {"plain view": RelationType.View, "materialized view": RelationType.MaterializedView}


@dataclass
class NameOnly(Policy):
    """A lake has one space of names."""

    database: bool = False
    schema: bool = False
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class StrandlineRelation(BaseRelation):
    """A stream, table or view."""

    include_policy: Policy = field(default_factory=NameOnly)
    quote_policy: Policy = field(default_factory=NameOnly)
    quote_character: str = '"'

    def _render_event_time_filtered(self, event_time_filter: EventTimeFilter) -> str:
        """Nothing: of a microbatch model each batch would be a view of its rows alone, and replace the one before."""
        return ""


class StrandlineColumn(BaseColumn):
    """A column of a relation. Texts have no longest length."""

    @classmethod
    def string_type(cls, size: int) -> str:
        return "VARCHAR"


@dataclass
class StrandlineConfig(AdapterConfig):
    """What `config(…)` of a model may say beside dbt's own.

    Attributes:
        options: those of WITH: `{freshness: '5 seconds', state: shared}`.
    """

    options: dict[str, str] | None = None


class StrandlineAdapter(BaseAdapter):
    """Answers dbt about a lake, and changes it by statements."""

    Relation = StrandlineRelation
    Column = StrandlineColumn
    ConnectionManager = StrandlineConnectionManager
    AdapterSpecificConfigs = StrandlineConfig
    CONSTRAINT_SUPPORT = dict.fromkeys(ConstraintType, ConstraintSupport.NOT_SUPPORTED)
    connections: StrandlineConnectionManager

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        return quoted(identifier)

    # --- what there is --------------------------------------------------------------------------------------------

    def list_schemas(self, database: str) -> list[str]:
        return sorted({about["pipeline"] for about in self._all()})

    def check_schema_exists(self, database: str, schema: str) -> bool:
        return True

    def create_schema(self, relation: BaseRelation) -> None:
        """Do nothing: a pipeline is there with its first definition."""

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        return [
            self.Relation.create(
                database=schema_relation.database,
                schema=schema_relation.schema,
                identifier=about["name"],
                type=_KINDS.get(about["kind"], RelationType.Table),
            )
            for about in self._all()
            if about["pipeline"] == schema_relation.schema
        ]

    def get_columns_in_relation(self, relation: BaseRelation) -> list[BaseColumn]:
        with self.connections.exception_handler(f"describe {relation}"):
            about = self.connections.lake.describe(str(relation.identifier))
        return [self.Column(column["name"], column["type"]) for column in about["columns"]]

    def get_catalog(
        self, relation_configs: Iterable[RelationConfig], used_schemas: Set[tuple[str, str]]
    ) -> tuple[agate.Table, list[Exception]]:
        """All columns of the lake, whichever pipeline they are in: a source may be in any."""
        wanted = {each.identifier: each for each in map(self._relation_of, relation_configs)}
        with self.connection_named("catalog"):
            known = [about for about in self._all() if about["name"] in wanted]
        rows = [
            (
                *(wanted[about["name"]].database, wanted[about["name"]].schema, about["name"], about["kind"]),
                *(about.get("description"), None, column["name"], place, column["type"], None),
            )
            for about in known
            for place, column in enumerate(about["columns"], 1)
        ]
        import agate

        return agate.Table(rows, _CATALOG, column_types=DEFAULT_TYPE_TESTER), []

    def _relation_of(self, config: RelationConfig) -> BaseRelation:
        return self.Relation.create_from(self.config, config)

    def _all(self) -> list[dict[str, Any]]:
        lake = self.connections.lake
        return [lake.describe(name) for name in lake.names()]

    # --- what changes -----------------------------------------------------------------------------------------------

    def drop_relation(self, relation: BaseRelation) -> None:
        kind = "VIEW" if relation.type in (RelationType.View, RelationType.MaterializedView) else "TABLE"
        with self.connections.exception_handler(f"drop {relation}"):
            self.connections.apply(f"DROP {kind} IF EXISTS {relation}")
        self.cache_dropped(relation)

    def drop_schema(self, relation: BaseRelation) -> None:
        for each in reversed(self.list_relations_without_caching(relation)):
            self.drop_relation(each)

    def truncate_relation(self, relation: BaseRelation) -> None:
        raise DbtRuntimeError(f"{relation} is what its SELECT says: it cannot be truncated")

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> None:
        with self.connections.exception_handler(f"rename {from_relation}"):
            self.connections.apply(f"ALTER VIEW {from_relation} RENAME TO {to_relation}")

    def get_column_schema_from_query(self, sql: str) -> list[BaseColumn]:
        """The columns that a SELECT would have; it is not run."""
        with self.connections.exception_handler(sql):
            return [self.Column(name, kind) for name, kind in self.connections.lake.columns(sql).items()]

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Do nothing: a view has the types of its SELECT."""

    @available
    def define(self, relation: BaseRelation, sql: str) -> str:
        """Execute the statement that defines a relation, in the pipeline of its schema; what it did, in words."""
        with self.connections.exception_handler(sql):
            return self.connections.apply(sql, str(relation.schema))

    @available
    def define_model(
        self, relation: BaseRelation, present: BaseRelation | None, definition: str, full_refresh: bool
    ) -> str:
        """Define a model in the place of what has its name; what was done, in words.

        Args:
            present: what has its name, perhaps of another kind.
            definition: CREATE OR REPLACE.
            full_refresh: what cannot be replaced as it stands is dropped with all that reads it.

        Raises:
            DbtDatabaseError: the definition is refused; or something reads what cannot be replaced as it stands.
                Nothing was changed.
        """
        if present is None:
            return self.define(relation, definition)
        if present.type == relation.type:
            try:
                return self.connections.apply(definition, str(relation.schema))
            except strandline.StrandlineError as error:
                if error.code not in _NOT_IN_PLACE or not full_refresh:
                    raise self._refused(relation, error) from error
        with self.connections.exception_handler(definition):
            self.connections.rehearse(definition.replace(str(relation), self.quote(_REHEARSED), 1))
        try:
            dropped = self.connections.apply(f"DROP VIEW {relation}{' CASCADE' if full_refresh else ''}")
        except strandline.StrandlineError as error:
            raise self._refused(relation, error) from error
        dropped = dropped.replace("\n", "; ")
        return f"{dropped}; {self.define(relation, definition)}"

    def _refused(self, relation: BaseRelation, error: strandline.StrandlineError) -> DbtDatabaseError:
        said = ""
        if error.code in _NOT_IN_PLACE:
            said = (
                f"\n  or: dbt build --full-refresh --select {relation.identifier}+ drops it with all that reads it, "
                "and makes them anew"
            )
        return DbtDatabaseError(f"{error}{said}")

    @available
    def drain(self, relation: BaseRelation) -> bool:
        """Bring a model up to date, with all of its pipeline and of those below; False: others do."""
        return self.connections.drain(str(relation.identifier))

    @available
    def drain_own(self, relation: BaseRelation) -> None:
        """Bring what dbt alone asks, a snapshot or stored failures, up to date, whatever the profile says of `drain`.

        Raises:
            DbtDatabaseError: its pipeline runs elsewhere.
        """
        self.connections.drain_own(str(relation.identifier))

    # --- snapshots --------------------------------------------------------------------------------------------------

    @available
    def drain_below(self, names: list[str]) -> None:
        """Bring what a snapshot reads up to date, before it is taken.

        Args:
            names: of all that it reads, also through ephemeral models, which the lake does not have, and plain views.
        """
        there = set(self.connections.lake.names()) - set(self.connections.lake.plain_views())
        self.connections.drain_below([name for name in names if name in there])

    @available
    def make_snapshot(self, relation: BaseRelation, sql: str, key: str) -> None:
        """Make the table of a snapshot, with the columns of its first rows but not these, and the source over it."""
        with self.connections.exception_handler(sql):
            snapshot = self._snapshot(relation, key)
            snapshot.make(sql)
        self.define(relation, snapshot.declaration)
        self.cache_added(relation)

    @available
    def take_snapshot(self, relation: BaseRelation, sql: str, key: str, valid_to: str) -> str:
        """Merge the rows that end and begin into a snapshot; how many, in words.

        Args:
            sql: dbt's own text for the strategy.
            key, valid_to: what these columns of it are called.

        Raises:
            DbtRuntimeError: `unique_key` is not unique.
        """
        snapshot = self._snapshot(relation, key)
        self.drain_own(relation)  # what a snapshot that was killed has merged
        with self.connections.exception_handler(sql):
            new = snapshot.new_columns(sql)
            if new:
                snapshot.add_columns(new, sql)
                for name, kind in new.items():
                    self.define(relation, f"ALTER TABLE {relation} ADD COLUMN {self.quote(name)} {kind}")
            ended, begun = snapshot.take(sql, valid_to)
        self.drain_own(relation)
        return f"{begun} rows begin, {ended} end"

    def _snapshot(self, relation: BaseRelation, key: str) -> Snapshot:
        return Snapshot(str(relation.identifier), key, self.connections.lake)

    @available
    def check_unique(self, relation: BaseRelation, unique_key: str | list[str]) -> None:
        """Check that a model has one row of each key: dbt's strategies keep one, a SELECT has to say which.

        Raises:
            DbtRuntimeError: a key has several rows.
        """
        named = ", ".join([unique_key] if isinstance(unique_key, str) else unique_key)
        several = f"SELECT COUNT(*) AS keys FROM (SELECT {named} FROM {relation} GROUP BY {named} HAVING COUNT(*) > 1)"
        with self.connections.exception_handler(several):
            (found,) = self.connections.lake.query(several)
        if found["keys"]:
            raise DbtRuntimeError(
                f"{found['keys']} values of unique_key ({named}) have several rows in {relation}. "
                f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {named} ORDER BY …) = 1 keeps one of each"
            )

    @available
    def write_seed(self, relation: BaseRelation, table: agate.Table, types: dict[str, str]) -> str:
        """Write a seed's rows to a Delta table beside the lake's own; where it is.

        Args:
            types: {column: its type}, of `column_types`.

        Raises:
            DbtRuntimeError: a value is not of its column's type.
        """
        told = {name.lower(): kind for name, kind in types.items()}
        columns = {
            name.lower(): told.get(name.lower()) or self.convert_type(table, place) or "VARCHAR"
            for place, name in enumerate(table.column_names)
        }
        texts = [tuple(None if value is None else str(value) for value in row) for row in table.rows]
        return written(str(relation.identifier), columns, texts, self.connections.lake.settings)

    @available
    def drop_if_other(self, relation: BaseRelation, place: str, with_readers: bool) -> None:
        """Drop what has a seed's name, unless it is the source over that place.

        Args:
            with_readers: drop what reads it too; dbt's --full-refresh.

        Raises:
            DbtRuntimeError: something reads it.
        """
        name = str(relation.identifier)
        found = next((each for each in self._all() if each["name"] == name), None)
        if found is None or place in found.get("topic", ""):
            return
        kind = "VIEW" if found["kind"] in _KINDS else "TABLE"
        try:
            self.connections.apply(f"DROP {kind} {relation}{' CASCADE' if with_readers else ''}")
        except strandline.StrandlineError as error:
            raise DbtRuntimeError(
                f"the seed {name} has other columns now. {error}. --full-refresh drops them"
            ) from error

    # --- types of seeds -----------------------------------------------------------------------------------------------

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "VARCHAR"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        return "DOUBLE" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "BIGINT"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "BIGINT"

    @classmethod
    def convert_boolean_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "BOOLEAN"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "TIMESTAMP"

    @classmethod
    def convert_date_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "DATE"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "TIME"
