"""The adapter: a model is a definition of the lake, a schema is a pipeline, and dbt's questions are answered from the
catalog."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import AdapterConfig, BaseAdapter, BaseRelation, available
from dbt.adapters.base.column import Column as BaseColumn
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.strandline.connections import StrandlineConnectionManager
from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER
from dbt_common.exceptions import DbtRuntimeError

if TYPE_CHECKING:
    import agate
    from dbt.adapters.contracts.relation import RelationConfig

_CATALOG = (
    *("table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner"),
    *("column_name", "column_index", "column_type", "column_comment"),
)
_KINDS = {"plain view": RelationType.View, "materialized view": RelationType.MaterializedView}
MOST_SEEDED = 5_000
"""Rows of a seed. They are constants in the text of a view, which is read whenever something that reads it is."""


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
    Column = BaseColumn
    ConnectionManager = StrandlineConnectionManager
    AdapterSpecificConfigs = StrandlineConfig
    connections: StrandlineConnectionManager

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

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
        return [BaseColumn(column["name"], column["type"]) for column in about["columns"]]

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
        return [lake.describe(name) for name in (*lake.names(), *lake.plain_views())]

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

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Do nothing: a view has the types of its SELECT."""

    @available
    def drain(self, relation: BaseRelation) -> bool:
        """Bring a model up to date, with all of its pipeline and of those below; False: others do."""
        return self.connections.drain(str(relation.identifier))

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
    def seed_values(self, table: agate.Table, types: dict[str, str]) -> str:
        """The SELECT of a seed's rows, as constants.

        Raises:
            DbtRuntimeError: there are none, or too many.
        """
        rows = list(table.rows)
        if not 0 < len(rows) <= MOST_SEEDED:
            raise DbtRuntimeError(
                f"a seed has 1 to {MOST_SEEDED} rows, this one has {len(rows)}: give the rows to a topic, or read them "
                "as a Delta table"
            )
        names = [name.lower() for name in table.column_names]
        kinds = [types.get(name) or self.convert_type(table, place) or "VARCHAR" for place, name in enumerate(names)]
        casts = ", ".join(
            f"CAST({self.quote(name)} AS {kind}) AS {self.quote(name)}" for name, kind in zip(names, kinds, strict=True)
        )
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
        listed = ", ".join(map(self.quote, names))
        return f"SELECT {casts} FROM (VALUES {values}) AS seeded ({listed})"

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


def _literal(value: object) -> str:
    """A value as a text that the column's type is cast from; a quote in it is written twice."""
    if value is None:
        return "NULL"
    return "'" + str(value).replace("'", "''") + "'"
