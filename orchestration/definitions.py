"""The code location that Dagster loads: every pipeline registered in the lake, as assets and jobs.

The lake is read when the location loads. After `strandline apply`, reload it (Deployment > Reload, or restart).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from jobs.catalog.catalog import Catalog
from jobs.ivm.plan.plan import plan
from jobs.model.settings import load_settings
from orchestration.assets import pipeline_assets, topics
from orchestration.launch import DrainClient
from orchestration.roles import identifier
from orchestration.translator import OWNERS, Translator
from state_store.layout import Lake

if TYPE_CHECKING:
    from jobs.model.settings import Settings


def build(settings: Settings) -> dg.Definitions:
    """The definitions of the lake that `settings` names.

    Raises:
        CorruptState: a definition in the catalog cannot be read.
    """
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    pipelines = {name: catalog.pipeline(name) for name in catalog.pipelines()}
    everything = [definition for definitions in pipelines.values() for definition in definitions]
    translator = Translator(
        everything,
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
    return dg.Definitions(
        assets=[*(topics(translator, everything) or [_nothing_yet(lake)]), *drained.values()],
        jobs=[
            dg.define_asset_job(
                f"drain_{identifier(name)}",
                selection=dg.AssetSelection.assets(*assets.keys),
                description=f"Brings every table of the pipeline `{name}` up to what its topics hold now, then ends.",
            )
            for name, assets in drained.items()
        ],
        # A step only waits for its child process: one more process for each step would isolate nothing, and takes
        # seconds to start.
        executor=dg.in_process_executor,
    )


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
