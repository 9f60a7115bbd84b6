"""The code location that Dagster loads: every pipeline registered in the lake, as assets and jobs.

The lake is read when the location loads. After `strandline apply`, reload it (Deployment > Reload, or restart).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import load_settings
from strandline.orchestration.alerts import alert_sensor
from strandline.orchestration.commits import commit_sensor
from strandline.orchestration.launch import DrainClient
from strandline.orchestration.operations import check_job, compact_job, lake_jobs, schedules
from strandline.orchestration.pipelines import pipeline_of, refresh_job, topics
from strandline.orchestration.roles import OWNERS
from strandline.orchestration.streaming import keeper
from strandline.orchestration.translator import Translator
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

    from strandline.jobs.catalog.stored_definition import Broken
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.orchestration.pipelines import Pipeline

log = logging.getLogger("strandline")


def build(settings: Settings) -> dg.Definitions:
    """The definitions of the lake that `settings` names, without the pipelines that need a broken catalog file."""
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    whole = {name: _materialized(catalog.pipeline(name)) for name in catalog.pipelines() if _is_whole(name, catalog)}
    everything = [definition for definitions in whole.values() for definition in definitions]
    translator = Translator(
        catalog.definitions(),
        lake,
        on_kafka=settings.kafka.bootstrap_servers is not None,
        plan_of=lambda view: plan(view, catalog),
        server_url=settings.server.url,
        name_map=catalog.name_map,
    )
    client = DrainClient()
    made = (pipeline_of(name, definitions, translator, settings, client) for name, definitions in whole.items())
    pipelines = {name: pipeline for name, pipeline in zip(whole, made, strict=True) if pipeline is not None}
    shown = [*topics(translator, everything), *map(_broken, catalog.broken.values())]
    jobs = _jobs_of_the_lake(list(pipelines.values()), settings)
    return dg.Definitions(
        assets=[*(shown or [_nothing_yet(lake)]), *(pipeline.assets for pipeline in pipelines.values())],
        asset_checks=[check for pipeline in pipelines.values() for check in pipeline.all_checks],
        jobs=[*(job for each in pipelines.values() for job in (each.drain, each.stream)), *jobs],
        schedules=schedules(jobs, backed_up=settings.backup.destination is not None),
        sensors=[
            alert_sensor(settings),
            commit_sensor(settings, [each.shown for each in pipelines.values()], catalog.definitions()),
            *([kept] if (kept := keeper({name: each.stream for name, each in pipelines.items()}, settings)) else []),
        ],
        # A step only waits for its child process: one more process for each step would isolate nothing, and takes
        # seconds to start.
        executor=dg.in_process_executor,
    )


def _jobs_of_the_lake(
    pipelines: Sequence[Pipeline], settings: Settings
) -> list[dg.JobDefinition | UnresolvedAssetJobDefinition]:
    """The jobs over all pipelines."""
    shown = {table: key for pipeline in pipelines for table, key in pipeline.tables().items()}
    signs = [each.checks.health_checks for each in pipelines if each.checks.health_checks is not None]
    proofs = [each.checks.proofs for each in pipelines if each.checks.proofs is not None]
    drills = [each.drills for each in pipelines if each.drills is not None]
    checking = [
        check_job(
            "health_checks",
            signs,
            "Whether every view goes on, how fresh it is, and what was left out: from commits alone.",
        ),
        check_job("proofs", proofs, "Every view against its SQL, its changelog and its digest: reads all rows."),
        check_job("drills", drills, "Every recovery of every view, rehearsed on copies and measured."),
    ]
    refreshing = [refresh_job(pipelines)] if pipelines else []
    found = [*refreshing, *(each for each in checking if each is not None)]
    return [*found, compact_job(settings, shown), *lake_jobs(settings)]


def _materialized(definitions: Iterable[Definition]) -> list[Definition]:
    """The definitions that a run writes tables for: of a partial view nothing is ever materialized."""
    return [each for each in definitions if not (isinstance(each, View) and each.partial)]


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


def _nothing_yet(lake: LakeLayout) -> dg.AssetSpec:
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
