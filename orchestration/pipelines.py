"""One pipeline in Dagster: its assets, its checks and drills, the job that drains it, and its continuous mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from jobs.model.definitions import Source, View
from orchestration.assets import pipeline_assets
from orchestration.checks import pipeline_checks
from orchestration.drills import pipeline_drills
from orchestration.roles import Role, asset_key, identifier, role_of, table_of
from orchestration.schedules import made_by
from orchestration.streaming import streaming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

    from jobs.model.definitions import Definition
    from jobs.model.settings import Settings
    from orchestration.checks import PipelineChecks
    from orchestration.launch import DrainClient
    from orchestration.streaming import Streaming
    from orchestration.translator import Translator


@dataclass(frozen=True)
class Pipeline:
    """What Dagster has of one pipeline."""

    specs: tuple[dg.AssetSpec, ...]
    assets: dg.AssetsDefinition
    checks: PipelineChecks
    drills: dg.AssetChecksDefinition | None
    drain: UnresolvedAssetJobDefinition
    streaming: Streaming

    @property
    def all_checks(self) -> list[dg.AssetChecksDefinition]:
        """Its checks and drills."""
        return [*self.checks.all, *([self.drills] if self.drills is not None else [])]

    def shown(self) -> dict[str, list[dg.AssetKey]]:
        """{table: the assets that show it, the table itself first}."""
        found: dict[str, list[dg.AssetKey]] = {}
        for spec in self.specs:
            if role_of(spec) is not Role.TOPIC:
                found.setdefault(table_of(spec), []).append(spec.key)
        return found


def pipeline_of(
    name: str, definitions: Sequence[Definition], translator: Translator, settings: Settings, client: DrainClient
) -> Pipeline | None:
    """The pipeline of that name; None when it has no tables."""
    assets = pipeline_assets(name, definitions, translator, client)
    if assets is None:
        return None
    specs = tuple(spec for definition in definitions for spec in translator.specs(definition))
    checks = pipeline_checks(name, definitions, translator, settings)
    topics = {each.topic: asset_key(Role.TOPIC, each.topic) for each in definitions if isinstance(each, Source)}
    drain = dg.define_asset_job(
        f"drain_{identifier(name)}",
        selection=dg.AssetSelection.assets(*assets.keys).without_checks() | made_by(checks.cheap),
        description=f"Brings every table of the pipeline `{name}` up to what its topics hold now, then ends.",
        tags={"strandline/mode": "drain"},
    )
    views = [each for each in definitions if isinstance(each, View)]
    return Pipeline(
        specs,
        assets,
        checks,
        pipeline_drills(name, views, translator, settings),
        drain,
        streaming(name, specs, topics, definitions, settings),
    )
