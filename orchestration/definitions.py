"""The code location that Dagster loads: every pipeline registered in the lake, as assets and jobs.

The lake is read when the location loads. After `strandline apply`, reload it (Deployment > Reload, or restart).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dagster as dg

from jobs.catalog.catalog import Catalog
from jobs.ivm.plan.plan import plan
from jobs.model.definitions import Source
from jobs.model.settings import load_settings
from orchestration.assets import pipeline_assets, topics
from orchestration.checks import pipeline_checks
from orchestration.launch import DrainClient
from orchestration.roles import Role, asset_key, identifier
from orchestration.streaming import streaming
from orchestration.translator import OWNERS, Translator
from state_store.errors import CorruptState
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.catalog.broken import Broken
    from jobs.model.definitions import Definition
    from jobs.model.settings import Settings

log = logging.getLogger("strandline")


def build(settings: Settings) -> dg.Definitions:
    """The definitions of the lake that `settings` names, without the pipelines that need a broken catalog file."""
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    pipelines = {name: catalog.pipeline(name) for name in catalog.pipelines() if _is_whole(name, catalog)}
    everything = [definition for definitions in pipelines.values() for definition in definitions]
    translator = Translator(
        catalog.definitions(),
        lake,
        on_kafka=settings.kafka.bootstrap_servers is not None,
        plan_of=lambda view: plan(view, catalog),
    )
    client = DrainClient()
    drained = {
        name: assets
        for name, definitions in pipelines.items()
        if (assets := pipeline_assets(name, definitions, translator, client)) is not None
    }
    checks = {name: pipeline_checks(name, pipelines[name], translator, settings) for name in drained}
    streams = [
        streaming(name, _specs(pipelines[name], translator), _topic_keys(pipelines[name]), settings) for name in drained
    ]
    shown = [*topics(translator, everything), *map(_broken, catalog.broken.values())]
    return dg.Definitions(
        assets=[*(shown or [_nothing_yet(lake)]), *drained.values()],
        asset_checks=[check for each in checks.values() for check in each.all],
        jobs=[
            dg.define_asset_job(
                f"drain_{identifier(name)}",
                selection=dg.AssetSelection.assets(*assets.keys).without_checks() | _made_by(checks[name].cheap),
                description=f"Brings every table of the pipeline `{name}` up to what its topics hold now, then ends.",
            )
            for name, assets in drained.items()
        ]
        + [each.job for each in streams],
        sensors=[each.keeper for each in streams],
        # A step only waits for its child process: one more process for each step would isolate nothing, and takes
        # seconds to start.
        executor=dg.in_process_executor,
    )


def _specs(definitions: Iterable[Definition], translator: Translator) -> list[dg.AssetSpec]:
    return [spec for definition in definitions for spec in translator.specs(definition)]


def _topic_keys(definitions: Iterable[Definition]) -> dict[str, dg.AssetKey]:
    return {each.topic: asset_key(Role.TOPIC, each.topic) for each in definitions if isinstance(each, Source)}


def _made_by(checks: Iterable[dg.AssetChecksDefinition]) -> dg.AssetSelection:
    return dg.AssetSelection.checks(*(key for each in checks for key in each.check_keys))


def _is_whole(pipeline: str, catalog: Catalog) -> bool:
    """True if no catalog file that the pipeline needs is broken; what is in the way is logged."""
    try:
        catalog.check_pipeline(pipeline)
    except CorruptState as error:
        log.warning("the pipeline '%s' is left out: %s", pipeline, error)
        return False
    return True


def _broken(broken: Broken) -> dg.AssetSpec:
    """The asset shown for a definition whose file is broken: it says how to mend it."""
    return dg.AssetSpec(["broken", broken.name], description=str(broken.error()), owners=OWNERS)


def _nothing_yet(lake: Lake) -> dg.AssetSpec:
    """The asset shown for an empty lake: it says how to register a pipeline."""
    return dg.AssetSpec(
        ["start_here"],
        description=(
            f"No pipeline is registered in the lake `{lake.root}` yet.\n\n"
            "```shell\nstrandline apply jobs/pipelines/package_locations.sql\n```\n\n"
            "Then reload this code location. `STRANDLINE_LAKE` chooses another lake."
        ),
        owners=OWNERS,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The code location `strandline` of workspace.yaml."""
    return build(load_settings())
