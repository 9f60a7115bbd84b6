"""One pipeline in Dagster: its assets, its checks and drills, the job that drains it, and its continuous mode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.operate.quality.hindrances import Hindrances
from strandline.orchestration.assets import pipeline_assets
from strandline.orchestration.checks import cheap_evaluations, pipeline_checks
from strandline.orchestration.commits import Shown, tables_of
from strandline.orchestration.drills import pipeline_drills
from strandline.orchestration.roles import Role, asset_key, identifier
from strandline.orchestration.schedules import made_by
from strandline.orchestration.streaming import stream_job
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.orchestration.checks import PipelineChecks
    from strandline.orchestration.launch import DrainClient
    from strandline.orchestration.translator import Translator


@dataclass(frozen=True)
class Pipeline:
    """What Dagster has of one pipeline."""

    shown: Shown
    assets: dg.AssetsDefinition
    checks: PipelineChecks
    drills: dg.AssetChecksDefinition | None
    drain: UnresolvedAssetJobDefinition
    stream: dg.JobDefinition

    @property
    def all_checks(self) -> list[dg.AssetChecksDefinition]:
        """Its checks and drills."""
        return [*self.checks.all, *([self.drills] if self.drills is not None else [])]

    def tables(self) -> dict[str, dg.AssetKey]:
        """{table: the asset that shows its rows}."""
        return {table: specs[0].key for table, specs in tables_of(self.shown.specs).items()}


def pipeline_of(
    name: str, definitions: Sequence[Definition], translator: Translator, settings: Settings, client: DrainClient
) -> Pipeline | None:
    """The pipeline of that name; None when it has no tables."""
    evaluations = partial(cheap_evaluations, definitions, translator, settings)
    assets = pipeline_assets(name, definitions, translator, client, partial(_hindrances, settings), evaluations)
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
        Shown(name, specs, {view.name: translator.key_of(view.name) for view in views}),
        assets,
        checks,
        pipeline_drills(name, views, translator, settings),
        drain,
        stream_job(name, specs, topics, definitions, settings),
    )


def refresh_job(pipelines: Sequence[Pipeline]) -> UnresolvedAssetJobDefinition:
    """The job that the button *Materialize* launches: a refresh, with the checks that are cheap.

    Dagster's page launches the first of the jobs that the selected assets have in common, by name, with the checks that
    are part of it. Its own `__ASSET_JOB` has all of them, and would rehearse every recovery; capitals come before `_`.
    """
    assets = [key for each in pipelines for key in each.assets.keys]
    checks = [check for each in pipelines for check in each.checks.cheap]
    return dg.define_asset_job(
        "Refresh",
        selection=dg.AssetSelection.assets(*assets).without_checks() | made_by(checks),
        description="Brings the selected tables, or all, up to what the topics hold now; proofs and drills do not run.",
        tags={"strandline/mode": "drain"},
    )


def _hindrances(settings: Settings) -> Hindrances:
    lake = Lake(settings.lake)
    return Hindrances(Catalog(lake).definitions(), lake)
