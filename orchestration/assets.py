"""What Dagster knows of an asset before any run: its role with the key and tags that follow, its owners, its metadata.

The metadata are columns, lineage and SQL, in Dagster's types. Dagster hides its own column lineage entry outside
Dagster+, so the same lineage also goes out as a table to read.

Verdicts of quality checks are in Dagster's form here too: the result of a run, or an evaluation outside of one.

The topic that a view is published to is an asset too; how far it is are observations of that asset.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import InputColumn
from strandline.jobs.model.definitions import Ownership, Source
from strandline.jobs.model.errors import SourceError
from strandline.jobs.publish.publisher import topic_standing
from strandline.jobs.publish.topic import published_views, topic_as_source
from strandline.jobs.sql.dialect import Strandline
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlglot.tokenizer_core import Token

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.expect.expectations import Verdict
    from strandline.jobs.model.definitions import Definition, View
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.publish.publisher import TopicStanding


TABLE_NAME = "dagster/table_name"
_ROLE = "strandline/role"
_PLAIN = re.compile(r"[A-Za-z0-9_]+\Z")
# Kafka's rule for the name of a topic; Dagster allows the same in the keys of external assets.
_TOPIC = re.compile(r"[A-Za-z0-9._-]+\Z")


class Role(StrEnum):
    """The role of an asset; the first part of its key, in the singular."""

    TOPIC = "topic"
    LOG = "log"
    TABLE = "table"
    PROJECTION = "projection"
    CHANGELOG = "changelog"
    DEAD_LETTERS = "dead letters"


_FOLDERS = {
    Role.TOPIC: "topics",
    Role.LOG: "logs",
    Role.TABLE: "tables",
    Role.PROJECTION: "projections",
    Role.CHANGELOG: "changelogs",
    Role.DEAD_LETTERS: "dead_letters",
}
_ENDINGS = {
    Role.TOPIC: ".topic",
    Role.LOG: "__log",
    Role.TABLE: "",
    Role.PROJECTION: "",
    Role.CHANGELOG: "__changelog",
    Role.DEAD_LETTERS: "__dead_letters",
}
# Words that Dagster draws an icon for, where it has one.
KINDS = {
    Role.LOG: {"deltalake", "dataset"},
    Role.TABLE: {"deltalake", "table"},
    Role.PROJECTION: {"deltalake", "view"},
    Role.CHANGELOG: {"deltalake", "changelog"},
    Role.DEAD_LETTERS: {"deltalake"},
}


def identifier(name: str) -> str:
    """`name` as Dagster takes it for groups, jobs and ops: letters, digits and `_`. Different names stay different."""
    if _PLAIN.match(name):
        return name
    return f"{re.sub('[^A-Za-z0-9_]', '_', name)}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def asset_key(role: Role, name: str) -> dg.AssetKey:
    """The key of the asset that shows `name` in this role.

    Dagster labels an asset by the last part of its key, so that part says the role: only a table and a projection, of
    which there are never two of one name, have none.
    """
    shown = name if role is Role.TOPIC and _TOPIC.match(name) else identifier(name)
    return dg.AssetKey([_FOLDERS[role], f"{shown}{_ENDINGS[role]}"])


def role_tag(role: Role) -> dict[str, str]:
    """The tag that names the role of an asset."""
    return {_ROLE: role.replace(" ", "_")}


def role_of(spec: dg.AssetSpec) -> Role:
    """The role of an asset."""
    return Role(spec.tags[_ROLE].replace("_", " "))


def table_of(spec: dg.AssetSpec) -> str:
    """The table of the lake that the asset shows. Topics have none."""
    return str(spec.metadata[TABLE_NAME])


def localized(spec: dg.AssetSpec, name: str, name_map: NameMap) -> dg.AssetSpec:
    """The asset of a definition, whose description says the name that people see if it was renamed."""
    now = name_map.of(name)
    if now == name:
        return spec
    return spec.replace_attributes(description=f"`{name}` is called `{now}` now.\n\n{spec.description}")


def code_hash(*parts: str) -> str:
    """A code version that changes with any of these texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


OWNERS = ("team:strandline",)
"""Owners of assets without OWNER."""
ORIGIN = "written as"
"""The label of the text that a definition's SQL was made from."""
_OF_ROWS = (Role.LOG, Role.TABLE, Role.PROJECTION)
"""The roles of the assets that have the rows which a definition speaks of."""


def ownership_of(definition: Source | View, role: Role) -> dict[str, Any]:
    """Read the owners and tags of an asset of a definition: its own, and the tag of its role."""
    said = Ownership.read(definition.options)
    return {"owners": said.owners or OWNERS, "tags": {**said.tags, **role_tag(role)}}


def with_description(definition: Source | View, role: Role, sentence: str) -> str:
    """The description of an asset with the rows of a definition: what the definition says itself, then `sentence`."""
    said = Ownership.read(definition.options).description if role in _OF_ROWS else None
    return sentence if said is None else f"{said}\n\n{sentence}"


def origin_of(definition: Source | View, role: Role) -> dict[str, dg.MetadataValue[Any]]:
    """The text that the SQL of a definition was made from, for the asset with its rows."""
    origin = Ownership.read(definition.options).origin if role in _OF_ROWS else None
    return {} if origin is None else {ORIGIN: dg.MetadataValue.md(f"````\n{origin}\n````")}


# Column descriptions: the comments that stand beside columns in a definition's SQL.
#
# CREATE STREAM checkins (
#   id BIGINT KEY,      -- the package            the first column named on the comment's line
#   place VARCHAR);     /* where it was seen */
# SELECT id, MAX(rowtime) AS seen  -- newest event     of a query: the last


def column_comments(definition: Source | View) -> dict[str, str]:
    """{column: its comment}, of the columns that have one."""
    names = {column.name for column in definition.columns}
    found: dict[str, str] = {}
    for _, line in groupby(Strandline().tokenize(definition.sql), key=lambda token: token.line):
        tokens = list(line)
        text = " ".join(comment.strip() for token in tokens for comment in token.comments)
        named = [name for token in tokens if (name := _name(token, names)) is not None]
        if text and named:
            found[named[0] if isinstance(definition, Source) else named[-1]] = text
    return found


def _name(token: Token, names: Sequence[str] | set[str]) -> str | None:
    """The column that a token names: as it is written, or in the case that names without quotes are folded to."""
    return next((each for each in (token.text, token.text.lower()) if each in names), None)


COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
VISIBLE_LINEAGE = "column lineage"

SERVED = "rows and changes"
"""The link to the server's page."""
DATA_DOCS = "data docs"
"""The link to the page on a table's expectations."""
WHAT_TO_DO = "what to do"
"""The label of what to type or correct, beside the reason why something does not go on."""

# Repeated with every materialization, so that its history shows when a column was added or removed.
DEFINED = (COLUMN_SCHEMA, COLUMN_LINEAGE, VISIBLE_LINEAGE)


_OURS: Final = {
    "_topic": "the topic of the record",
    "_partition": "the partition of the record in its topic",
    "_offset": "the offset of the record in its partition",
    "_timestamp": "the time that the record bears",
    "_stream_time": "the latest time of any record of the partition so far",
    "_headers": "the headers of the record",
    "_key": "the raw bytes of the key",
    "_value": "the raw bytes of the value",
    WEIGHT: "+1: the row was inserted; -1: it was retracted",
    VERSION: "the version of the table that made the change",
    TIMESTAMP: "when that version was committed",
}
"""{a column that every table of its role has: its description}. No definition may have a column of such a name."""


def column_schema(
    columns: Sequence[tuple[str, SqlType]], key: Sequence[str] = (), comments: Mapping[str, str] = MappingProxyType({})
) -> dg.TableSchema:
    """The columns with their SQL types, those of the key marked (NULL is a group, so a key may be null).

    Args:
        comments: {column: its description}.
    """
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name,
                str(sql_type),
                description=comments.get(name, _OURS.get(name)),
                constraints=dg.TableColumnConstraints(other=["key"] if name in key else []),
            )
            for name, sql_type in columns
        ]
    )


def schema_of(
    definition: Source | View, added: Sequence[tuple[str, SqlType]] = (), key: Sequence[str] = ()
) -> dg.TableSchema:
    """The columns of a definition, with the comments that stand beside them in its SQL, then the added ones."""
    columns = [(column.name, column.type) for column in definition.columns]
    return column_schema([*columns, *added], key, column_comments(definition))


def column_lineage(
    origins: Mapping[str, Sequence[InputColumn]], asset_of: Callable[[str], dg.AssetKey]
) -> dict[str, dg.MetadataValue[Any]]:
    """The lineage twice: in Dagster's form, and as a table that its UI shows.

    Args:
        origins: {output column: its origins}.
        asset_of: the asset that holds an input.
    """
    deps = {
        column: [dg.TableColumnDep(asset_of(origin.input), origin.column) for origin in found]
        for column, found in origins.items()
    }
    rows = [
        f"| `{column}` | {', '.join(f'`{origin.input}.{origin.column}`' for origin in found) or '–'} |"
        for column, found in origins.items()
    ]
    return {
        COLUMN_LINEAGE: dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps)),
        VISIBLE_LINEAGE: dg.MetadataValue.md("\n".join(["| column | made of |", "| --- | --- |", *rows])),
    }


def copied(definition: Source | View, key: dg.AssetKey) -> dict[str, dg.MetadataValue[Any]]:
    """The lineage of columns that another asset of the definition has as well."""
    origins = {column.name: [InputColumn(definition.name, column.name)] for column in definition.columns}
    return column_lineage(origins, lambda _name: key)


def described(sentence: str, *statements: str) -> str:
    """A description: one sentence, then the SQL as it was written."""
    blocks = [f"```sql\n{statement.strip()}\n```" for statement in statements]
    return "\n\n".join([sentence, *blocks])


def with_definition(result: dg.MaterializeResult[Any], spec: dg.AssetSpec) -> dg.MaterializeResult[Any]:
    """The materialization, with the columns and the lineage of its definition added."""
    return result._replace(metadata=with_defined(result.metadata or {}, spec))


def with_defined(metadata: Mapping[str, Any], spec: dg.AssetSpec) -> dict[str, Any]:
    """Metadata of a materialization, with the columns and the lineage of its definition added."""
    return {**{label: spec.metadata[label] for label in DEFINED if label in spec.metadata}, **metadata}


def from_pipes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata that a child process reports, in Dagster's own types."""
    made = {"md": dg.MetadataValue.md, "json": dg.MetadataValue.json}
    return {
        label: made[value["type"]](value["raw_value"]) if isinstance(value, dict) else value
        for label, value in metadata.items()
    }


def served(view: str, server_url: str | None) -> dict[str, dg.MetadataValue[Any]]:
    """The link to a view on the page of `strandline serve`; none where no server is known."""
    if server_url is None:
        return {}
    return {SERVED: dg.MetadataValue.url(f"{server_url.rstrip('/')}/?view={quote(view, safe='')}")}


def data_docs(table: str, settings: Settings) -> dict[str, dg.MetadataValue[Any]]:
    """Where the page on a table's expectations is: on the server, or its file, where no server is known."""
    url, lake = settings.server.url, LakeLayout(settings.lake)
    if url is None:
        return {DATA_DOCS: dg.MetadataValue.path(str(lake.data_docs(table)))}
    called = Catalog(lake).name_map.of(table)
    return {DATA_DOCS: dg.MetadataValue.url(f"{url.rstrip('/')}/v1/views/{quote(called, safe='')}/data-docs")}


def result_of(verdict: Verdict, key: dg.AssetKey, metadata: Mapping[str, Any] | None = None) -> dg.AssetCheckResult:
    """The verdict as a run yields it. A check that could not be made is not green: it warns, and says why."""
    return dg.AssetCheckResult(
        passed=verdict.ok is True,
        asset_key=key,
        check_name=identifier(verdict.check),
        severity=_severity(verdict),
        description=verdict.what,
        metadata=_shown(verdict, metadata or {}),
    )


def evaluation_of(
    verdict: Verdict, key: dg.AssetKey, metadata: Mapping[str, Any] | None = None, *, blocking: bool = False
) -> dg.AssetCheckEvaluation:
    """The verdict as it is told outside of the check's own step."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=identifier(verdict.check),
        passed=verdict.ok is True,
        severity=_severity(verdict),
        description=verdict.what,
        metadata=_shown(verdict, metadata or {}),
        blocking=blocking,
    )


def _severity(verdict: Verdict) -> dg.AssetCheckSeverity:
    error = verdict.ok is False and verdict.severity == "error"
    return dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN


def _shown(verdict: Verdict, metadata: Mapping[str, Any]) -> dict[str, Any]:
    # Dagster hides Markdown behind a click, so what is one line is a text.
    hint = {WHAT_TO_DO: verdict.hint} if verdict.hint else {}
    details = {"details": dg.MetadataValue.md(verdict.markdown)} if verdict.markdown else {}
    return {**hint, **metadata, **verdict.numbers, **details}


log = logging.getLogger("strandline")


def changelog_topic(view: View, *, on_kafka: bool) -> dg.AssetSpec:
    """The asset of the topic that a view is published to: the same one as for a source that reads it."""
    source = topic_as_source(view)
    return dg.AssetSpec(
        asset_key(Role.TOPIC, source.topic),
        deps=[asset_key(Role.CHANGELOG, view.name)],
        description=(
            f"Topic `{source.topic}`, to which `{view.name}` is published: the newest row of each key; "
            f"keys {source.key_format}, values {source.value_format}."
        ),
        group_name=identifier(view.pipeline),
        kinds={"kafka" if on_kafka else "file", "changelog"},
        **ownership_of(view, Role.TOPIC),
        metadata={"partitions": source.partitions, "replicas": source.replicas},
    )


class ChangelogTopics:
    """The changelog topics of some views, and what was told of each last.

    Args:
        definitions: those of a pipeline; the views among them that are published count.
    """

    def __init__(self, settings: Settings, definitions: Iterable[Definition]) -> None:
        self._settings = settings
        self._lake = LakeLayout(settings.lake)
        self._views = published_views(definitions)
        self._told: dict[str, TopicStanding] = {}

    def events(self) -> Iterator[dg.AssetObservation]:
        """An observation of each topic that stands elsewhere than at the last call.

        A topic that cannot be asked is left out, and the log says why: its run says the same, and stops or goes on.
        """
        for view in self._views:
            try:
                standing = topic_standing(view, self._settings, self._lake)
            except SourceError as error:
                log.warning("the changelog topics cannot be asked how far they are: %s", error)
                return  # each further try would wait for the same brokers
            except StrandlineError as error:
                log.warning("the changelog topic of '%s' does not say how far it is: %s", view.name, error)
                continue
            if standing != self._told.get(view.name):
                self._told[view.name] = standing
                yield _observed(standing)


def _observed(standing: TopicStanding) -> dg.AssetObservation:
    """The observation of a topic. Labels must not change: Dagster plots each over time."""
    key = asset_key(Role.TOPIC, standing.topic)
    if standing.position is None or standing.lag is None:
        return dg.AssetObservation(key, description="it holds no version of the view yet, or does not say which")
    return dg.AssetObservation(
        key,
        metadata={
            "published version": standing.position.version,
            "published rows": standing.position.rows,
            "versions behind": standing.lag,
        },
    )
