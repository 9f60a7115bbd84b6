"""Turns definitions into asset specs: their keys, groups, kinds, owners, tags and code versions.

    definition                       assets
    CREATE STREAM s (…)              topics/T.topic ──> logs/s__log, dead_letters/s__dead_letters
    CREATE TABLE t (… PRIMARY KEY)   topics/T.topic ──> logs/t__log ──> tables/t;  dead_letters/t__dead_letters
    CREATE STREAM v AS SELECT        inputs ──> projections/v
    CREATE TABLE v AS SELECT         inputs ──> projections/v ──> changelogs/v__changelog
    … WITH (KAFKA_TOPIC = 'T')       … ──> changelogs/v__changelog ──> topics/T.topic
    INSERT INTO s SELECT             inputs ──> the asset of s

Inputs are logs, tables and projections, also of other pipelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from strandline.jobs.catalog.lineage import InputColumn, column_origins
from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.tables import DEAD_LETTER_COLUMNS, META_COLUMNS
from strandline.jobs.publish.topic import published
from strandline.orchestration.assets import (
    COLUMN_SCHEMA,
    KINDS,
    TABLE_NAME,
    Role,
    asset_key,
    changelog_topic,
    code_hash,
    column_lineage,
    column_schema,
    copied,
    described,
    identifier,
    localized,
    origin_of,
    ownership_of,
    schema_of,
    served,
    with_description,
)
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.jobs.model.stage import Plan
    from strandline.jobs.model.types import SqlType
    from strandline.state_store.layout import LakeLayout

_CHANGE_COLUMNS: tuple[tuple[str, SqlType], ...] = ((WEIGHT, t.BIGINT), (VERSION, t.BIGINT), (TIMESTAMP, t.TIMESTAMP))


_FOREIGN: Final = {
    "DELTA": ("Delta table `{}`", "deltalake"),
    "ICEBERG": ("Iceberg table `{}`", "iceberg"),
    "PARQUET": ("Folder of Parquet files `{}`", "parquet"),
}
"""{format of a source's rows: what it is over, and its mark}."""


class Translator:
    """Turns the definitions of a lake into asset specs.

    Args:
        definitions: every definition of the lake, in any order: a view's inputs may belong to other pipelines.
        lake: where the tables lie.
        on_kafka: topics are Kafka's, not files of the local log.
        plan_of: the plan of a view, for its column lineage; without it there is none.
        server_url: where people read the rows; without it no asset links there.
        name_map: of renamed definitions; the keys of assets, and so their history, are the stored names.
    """

    def __init__(
        self,
        definitions: Iterable[Definition],
        lake: LakeLayout,
        *,
        on_kafka: bool = False,
        plan_of: Callable[[View], Plan] | None = None,
        server_url: str | None = None,
        name_map: NameMap | None = None,
    ) -> None:
        self._name_map = name_map or NameMap()
        self._lake = lake
        self._plan_of = plan_of
        self._on_kafka = on_kafka
        self._server_url = server_url
        self._relations: dict[str, Source | View] = {}
        self._feeds: dict[str, list[InsertQuery]] = {}
        self._made: dict[str, tuple[Definition, list[dg.AssetSpec]]] = {}
        """{name: the definition, and its assets}: a location asks for each thrice, and to plan a view is most of it."""
        for definition in definitions:
            if isinstance(definition, InsertQuery):
                self._feeds.setdefault(definition.target, []).append(definition)
            else:
                self._relations[definition.name] = definition

    def specs(self, definition: Definition) -> list[dg.AssetSpec]:
        """The assets of a definition, in the order they are made. An InsertQuery has none of its own."""
        known = self._made.get(definition.name)
        if known is None or known[0] is not definition:
            known = self._made[definition.name] = definition, self._specs(definition)
        return known[1]

    def _specs(self, definition: Definition) -> list[dg.AssetSpec]:
        match definition:
            case Source():
                topic = self._topic(definition)
                table = [self._table(definition)] if definition.kind == "table" else []
                return [topic, self._log(definition), *table, self._dead_letters(definition)]
            case View(kind="stream"):
                return [self._derived_stream(definition)]
            case View():
                topics = [changelog_topic(definition, on_kafka=self._on_kafka)] if published(definition) else []
                return [self._projection(definition), self._changelog(definition), *topics]
            case InsertQuery():
                return []

    def key_of(self, relation: str) -> dg.AssetKey:
        """The asset of the relation that a query calls `relation`."""
        match self._relations.get(relation):
            case Source(kind="table"):
                return asset_key(Role.TABLE, relation)
            case View():
                return asset_key(Role.PROJECTION, relation)
            case _:
                return asset_key(Role.LOG, relation)

    def _topic(self, source: Source) -> dg.AssetSpec:
        if source.foreign:
            what, kind = _FOREIGN[source.value_format]
            begun = source.options.get("START_VERSION")
            return dg.AssetSpec(
                asset_key(Role.TOPIC, source.upstream),
                description=f"{what.format(source.upstream)}, which others write: only read.",
                group_name=identifier(source.pipeline),
                kinds={kind},
                **ownership_of(source, Role.TOPIC),
                metadata={"dagster/uri": source.upstream, **({"start_version": begun} if begun is not None else {})},
            )
        return dg.AssetSpec(
            asset_key(Role.TOPIC, source.topic),
            description=f"Topic `{source.topic}`: keys {source.key_format}, values {source.value_format}.",
            group_name=identifier(source.pipeline),
            kinds={"kafka" if self._on_kafka else "file"},
            **ownership_of(source, Role.TOPIC),
            metadata={"partitions": source.partitions, "replicas": source.replicas},
        )

    def _log(self, source: Source) -> dg.AssetSpec:
        feeds, inputs = self._fed(source)
        return self._spec(
            Role.LOG,
            source,
            table=tables.event_log(source),
            deps=[asset_key(Role.TOPIC, source.upstream), *inputs],
            description=described(
                f"Events of `{source.name}` from topic `{source.topic}`, one row each, only ever appended.",
                source.sql,
                *(feed.sql for feed in feeds),
            ),
            code_version=code_hash(source.sql, *(feed.fingerprint for feed in feeds)),
            metadata={COLUMN_SCHEMA: schema_of(source, META_COLUMNS)},
        )

    def _fed(self, stream: Source | View) -> tuple[list[InsertQuery], list[dg.AssetKey]]:
        """The queries that insert into a stream, and the assets that they read."""
        feeds = self._feeds.get(stream.name, [])
        return feeds, [self.key_of(name) for feed in feeds for name in feed.inputs]

    def _dead_letters(self, source: Source) -> dg.AssetSpec:
        return self._spec(
            Role.DEAD_LETTERS,
            source,
            table=tables.dead_letters(source.name),
            deps=[asset_key(Role.TOPIC, source.upstream)],
            description=f"Records of topic `{source.topic}` that could not be decoded: offset, raw bytes, the reason.",
            code_version=code_hash(source.sql),
            metadata={
                COLUMN_SCHEMA: column_schema(DEAD_LETTER_COLUMNS, comments={"reason": "why it could not be decoded"})
            },
        )

    def _table(self, source: Source) -> dg.AssetSpec:
        return self._spec(
            Role.TABLE,
            source,
            table=source.name,
            deps=[asset_key(Role.LOG, source.name)],
            description=described(f"The newest row of each key of `{source.name}`.", source.sql),
            code_version=code_hash(source.sql),
            metadata={
                COLUMN_SCHEMA: schema_of(source, key=source.key),
                **copied(source, asset_key(Role.LOG, source.name)),
            },
        )

    def _derived_stream(self, view: View) -> dg.AssetSpec:
        feeds, inputs = self._fed(view)
        return self._spec(
            Role.PROJECTION,
            view,
            table=view.name,
            deps=list(dict.fromkeys((*(self.key_of(name) for name in view.inputs), *inputs))),
            description=described(
                f"Stream `{view.name}`: events of its inputs, filtered and projected.",
                view.sql,
                *(feed.sql for feed in feeds),
            ),
            code_version=code_hash(view.fingerprint, *(feed.fingerprint for feed in feeds))
            if feeds
            else view.fingerprint,
            metadata={COLUMN_SCHEMA: schema_of(view, META_COLUMNS), **self._lineage(view)},
        )

    def _projection(self, view: View) -> dg.AssetSpec:
        return self._spec(
            Role.PROJECTION,
            view,
            table=view.name,
            deps=[self.key_of(name) for name in view.inputs],
            description=described(f"Projection `{view.name}`, kept up to date from its inputs' changes.", view.sql),
            code_version=view.fingerprint,
            metadata={
                COLUMN_SCHEMA: schema_of(view, key=view.key),
                **self._lineage(view),
                **served(self._name_map.of(view.name), self._server_url),
            },
        )

    def _changelog(self, view: View) -> dg.AssetSpec:
        return self._spec(
            Role.CHANGELOG,
            view,
            table=view.name,
            deps=[asset_key(Role.PROJECTION, view.name)],
            description=(
                f"The changes of `{view.name}`, in order: rows inserted (weight +1) or retracted (-1), by version."
            ),
            code_version=view.fingerprint,
            metadata={
                COLUMN_SCHEMA: schema_of(view, _CHANGE_COLUMNS, view.key),
                **copied(view, asset_key(Role.PROJECTION, view.name)),
            },
        )

    def _spec(
        self,
        role: Role,
        definition: Source | View,
        *,
        table: str,
        metadata: dict[str, Any] | None = None,
        **others: Any,
    ) -> dg.AssetSpec:
        """The spec of an asset with a table, with the parts that all of them share."""
        spec = dg.AssetSpec(
            asset_key(role, definition.name),
            group_name=identifier(definition.pipeline),
            kinds=KINDS[role],
            **ownership_of(definition, role),
            metadata={
                TABLE_NAME: table,
                "dagster/storage_kind": "deltalake",
                # Not a path: Dagster's page shows texts and URLs alone under this label.
                "dagster/uri": str(self._lake.table(table)),
                **origin_of(definition, role),
                **(metadata or {}),
            },
            **{**others, "description": with_description(definition, role, others["description"])},
        )
        return localized(spec, definition.name, self._name_map)

    def _lineage(self, view: View) -> dict[str, dg.MetadataValue[Any]]:
        if self._plan_of is None:
            return {}
        try:
            origins = column_origins(self._plan_of(view))
        except SqlError:
            return {}  # a change of an input has stopped the view: its run says why
        named = {column: [self._read(origin) for origin in found] for column, found in origins.items()}
        return column_lineage(named, self.key_of)

    def _read(self, origin: InputColumn) -> InputColumn:
        """The origin as the query names it: the event log of a table counts as the table."""
        table = next((n for n in self._relations if tables.log_below(n) == origin.input), origin.input)
        return InputColumn(table, origin.column)
