"""The metadata of a definition's tables, known before any run: columns, lineage and SQL, in Dagster's types.

Dagster hides its own column lineage entry outside Dagster+, so the same lineage also goes out as a table to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg
from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.relation import WINDOW_BOUNDS
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, Core, LatestStage, MapStage, Stage, body_of
from strandline.jobs.sql.dialect import Strandline
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot.tokenizer_core import Token

    from strandline.jobs.model.definitions import View
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Plan
    from strandline.jobs.model.types import SqlType


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


# Column lineage: the input columns that each output column of a view is made of, read from its plan.
#
#     SELECT s.area, AVG(r.value) AS mean FROM readings r JOIN sensors s ON …
#
#         area  <- sensors.area
#         mean  <- readings.value
#
# Only columns that make up the value count: those that merely filter, join or group a row are not among its origins.
# The origins of a function over a window are those of its arguments; without arguments (ROW_NUMBER), of its ORDER BY.


@dataclass(frozen=True, order=True)
class Origin:
    """A column of an input."""

    input: str
    column: str


def lineage(plan: Plan) -> dict[str, tuple[Origin, ...]]:
    """{output column: its origins, sorted}, in the order of the view's columns.

    Inner stages are followed down to the plan's inputs. A constant has no origins, and neither has COUNT(*).
    """
    stages = {stage.table: stage for stage in plan.stages[:-1]}
    last = plan.stages[-1]
    return {name: tuple(sorted(set(_of_column(last, name, stages)))) for name in _visible(last)}


def _visible(stage: Stage) -> Sequence[str]:
    if not isinstance(stage, MapStage):
        return [output.name for output in stage.outputs]
    meta = {"_partition", "_offset", "_timestamp", "_stream_time", "_headers"}
    return [name for name in stage.visible if name not in meta]


def _of_column(stage: Stage, name: str, stages: Mapping[str, Stage]) -> Iterator[Origin]:
    """The origins of a column of a stage's table, visible or hidden."""
    match stage:
        case MapStage():
            yield from _of_body(stage, name, stages)
        case LatestStage():
            yield Origin(stage.input.name, name)
        case AggregateStage() | AnalyticStage():
            output = next((each.expression for each in stage.outputs if each.name == name), None)
            for read in _names(output) if output is not None else [name]:
                for column in _below(stage, read):
                    yield from _of_body(stage, column, stages)


def _below(stage: AggregateStage | AnalyticStage, name: str) -> Iterator[str]:
    """The body's columns that a name above it is made of."""
    if isinstance(stage, AggregateStage):
        for group in stage.group:
            if group.name == name:
                yield from _names(group.expression)
        for call in stage.aggregates:
            if call.name == name:
                yield from (column for each in call.arguments for column in _names(each))
        if stage.session is not None and name in WINDOW_BOUNDS:
            yield stage.session.time
        return
    over = next((each for each in stage.calls if each.name == name), None)
    if over is None:
        yield name
        return
    values = over.arguments or tuple(each for each, _, _ in over.order)
    yield from (column for each in values for column in _names(each))


def _of_body(stage: Stage, name: str, stages: Mapping[str, Stage]) -> Iterator[Origin]:
    for core in body_of(stage):
        column = next((each for each in core.columns if each.name == name), None)
        if column is not None:
            yield from _of_expression(core, column.expression, stages)


def _of_expression(core: Core, node: exp.Expr, stages: Mapping[str, Stage]) -> Iterator[Origin]:
    for column in node.find_all(exp.Column):
        source = next((each.relation for each in core.inputs if each.alias == column.table), None)
        item = next((each.expression for each in core.expand if each.name == column.name), None)
        if source is not None and source.name in stages:
            yield from _of_column(stages[source.name], column.name, stages)
        elif source is not None:
            yield Origin(source.name, column.name)
        elif item is not None:
            yield from _of_expression(core, item, stages)


def _names(node: exp.Expr) -> list[str]:
    return [column.name for column in node.find_all(exp.Column)]


COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
VISIBLE_LINEAGE = "column lineage"

SERVED = "rows and changes"
"""The link to the server's page."""
DATA_DOCS = "data docs"
"""The link to the page on a table's expectations."""

# Repeated with every materialization, so that its history shows when a column was added or removed.
DEFINED = (COLUMN_SCHEMA, COLUMN_LINEAGE, VISIBLE_LINEAGE)


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
                description=comments.get(name),
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
    origins: Mapping[str, Sequence[Origin]], asset_of: Callable[[str], dg.AssetKey]
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
    origins = {column.name: [Origin(definition.name, column.name)] for column in definition.columns}
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
    url, lake = settings.server.url, Lake(settings.lake)
    if url is None:
        return {DATA_DOCS: dg.MetadataValue.path(str(lake.data_docs(table)))}
    called = Catalog(lake).name_map.of(table)
    return {DATA_DOCS: dg.MetadataValue.url(f"{url.rstrip('/')}/v1/views/{quote(called, safe='')}/data-docs")}
