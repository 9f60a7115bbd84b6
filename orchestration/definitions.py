"""The code location that Dagster loads: every pipeline registered in the lake, as assets and jobs.

The lake is read when the location loads. After `strandline apply`, reload it (Deployment > Reload, or restart).

Of each pipeline: its assets, its checks and drills, the job that drains it, and its continuous mode.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.stored_definition import Broken
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.model.definitions import Definition, Source, View
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.health_checks import Hindrance, Hindrances
from strandline.orchestration.assets import (
    OWNERS,
    WHAT_TO_DO,
    Role,
    asset_key,
    identifier,
    role_of,
    table_of,
    with_definition,
)
from strandline.orchestration.checks import PipelineChecks, cheap_evaluations, pipeline_checks, pipeline_drills
from strandline.orchestration.launch import DrainClient, drain_command
from strandline.orchestration.operations import check_job, compact_job, lake_jobs, made_by, schedules, thin_job
from strandline.orchestration.sensors import Shown, alert_sensor, commit_sensor, tables_of
from strandline.orchestration.streaming import Told, keeper, stream_job
from strandline.orchestration.told_checks import CheapChecks
from strandline.orchestration.told_rows import LastTold
from strandline.orchestration.translator import Translator
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.


# The assets of pipelines: for each, one subsettable multi-asset that drains it in a child process.

# A broker that restarts, or a writer that is just ending, is back within a minute: 5 s, 10 s, 20 s of waiting.
_RETRIES = 3
_FIRST_DELAY_SECONDS = 5


def topics(translator: Translator, definitions: Iterable[Definition]) -> list[dg.AssetSpec]:
    """The topics as external assets, each once: sources of several pipelines may read one topic, and a view that is
    published fill it."""
    specs = (spec for definition in definitions for spec in translator.specs(definition))
    found: dict[dg.AssetKey, dg.AssetSpec] = {}
    for spec in specs:
        # The spec of whoever fills it says where its records come from.
        if role_of(spec) is Role.TOPIC and (spec.key not in found or spec.deps):
            found[spec.key] = spec
    return list(found.values())


def pipeline_assets(
    pipeline: str,
    definitions: Sequence[Definition],
    translator: Translator,
    client: DrainClient,
    hindrances: Callable[[], Hindrances],
    evaluations: Callable[[], Iterable[dg.AssetCheckEvaluation]],
) -> dg.AssetsDefinition | None:
    """The tables of one pipeline as one multi-asset; None when it has none.

    The whole pipeline is one streaming query, so the whole pipeline is drained; a subset only limits the assets that
    are reported. Two drains of one pipeline never run at once: they share a pool of one slot.

    Args:
        hindrances: what keeps tables of the lake from going on, now. Such a table is not materialized, since its rows
            are not up to what its topics hold: the run says why, and fails.
        evaluations: the pipeline's cheap checks, made when a table is not materialized.
    """
    found = [s for definition in definitions for s in translator.specs(definition) if role_of(s) is not Role.TOPIC]
    if not found:
        return None
    specs = _inputs_first(found)

    @dg.multi_asset(
        name=f"{identifier(pipeline)}__drain",
        specs=specs,
        can_subset=True,
        pool=f"pipeline:{identifier(pipeline)}",
        description=f"Drains the pipeline `{pipeline}`: takes in what its topics hold and refreshes its views.",
    )
    def drained(context: dg.AssetExecutionContext) -> Iterator[Any]:
        last = LastTold(context.instance, [spec.key for spec in specs])
        tables = {spec.key.to_escaped_user_string(): _asked(spec, last) for spec in specs}
        done = _run(client, context, drain_command(pipeline), {"tables": tables})
        results = {r.asset_key: r for r in done.get_results(implicit_materializations=False)}
        found = hindrances()
        hindered = {spec.key: one for spec in specs if (one := found.of(table_of(spec))) is not None}
        # Dagster derives data versions on the way, so an asset must come after its inputs.
        for spec in specs:
            result = results.get(spec.key)
            if isinstance(result, dg.MaterializeResult) and spec.key not in hindered:
                yield with_definition(result, spec)
        left = {key: one for key, one in hindered.items() if key in context.selected_asset_keys}
        if left:
            yield from (_observed(key, one) for key, one in left.items())
            yield from evaluations()
            told = "\n".join(f"{key.to_user_string()} is {one.state}: {one.why}" for key, one in left.items())
            raise dg.Failure(told, allow_retries=False)

    return drained


def _observed(key: dg.AssetKey, found: Hindrance) -> dg.AssetObservation:
    return dg.AssetObservation(key, metadata={"state": found.state, "why": found.why, WHAT_TO_DO: found.hint})


def _asked(spec: dg.AssetSpec, last: LastTold) -> dict[str, Any]:
    """What the drain is asked to report of an asset: see `jobs.run.dagster_child`."""
    return {"table": table_of(spec), "role": str(role_of(spec)), "told": last.version(spec.key)}


def _run(
    client: DrainClient, context: dg.AssetExecutionContext, command: Sequence[str], extras: dict[str, Any]
) -> dg.PipesClientCompletedInvocation:
    """Run the drain, and request a retry where that may help.

    Not by a RetryPolicy: Dagster applies one to a cancelled step as well, and would start the drain again.
    """
    try:
        return client.run(context=context, command=command, extras=extras)
    except dg.Failure as failure:
        if not failure.allow_retries:
            raise
        delay = _FIRST_DELAY_SECONDS * 2**context.retry_number
        raise dg.RetryRequested(max_retries=_RETRIES, seconds_to_wait=delay) from failure


def _inputs_first(specs: Sequence[dg.AssetSpec]) -> list[dg.AssetSpec]:
    """The specs in topological order: a query that feeds an earlier stream may read a later view."""
    by_key = {spec.key: spec for spec in specs}
    edges = {spec.key: [dep.asset_key for dep in spec.deps if dep.asset_key in by_key] for spec in specs}
    return [by_key[key] for key in TopologicalSorter(edges).static_order()]


@dataclass(frozen=True)
class _Pipeline:
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


def _pipeline_of(
    name: str,
    definitions: Sequence[Definition],
    translator: Translator,
    settings: Settings,
    client: DrainClient,
    everything: Sequence[dg.AssetSpec],
) -> _Pipeline | None:
    """The pipeline of that name; None when it has no tables.

    Args:
        everything: the assets of the lake.
    """
    evaluations = partial(cheap_evaluations, definitions, translator, settings)
    assets = pipeline_assets(name, definitions, translator, client, partial(_hindrances, settings), evaluations)
    if assets is None:
        return None
    specs = tuple(spec for definition in definitions for spec in translator.specs(definition))
    checks = pipeline_checks(name, definitions, translator, settings)
    topics = {each.topic: asset_key(Role.TOPIC, each.upstream) for each in definitions if isinstance(each, Source)}
    drain = dg.define_asset_job(
        f"drain_{identifier(name)}",
        selection=dg.AssetSelection.assets(*assets.keys).without_checks() | made_by(checks.cheap),
        description=f"Brings every table of the pipeline `{name}` up to what its topics hold now, then ends.",
        tags={"strandline/mode": "drain"},
    )
    views = [each for each in definitions if isinstance(each, View)]
    drills = pipeline_drills(name, views, translator, settings)
    of_assets = _by_asset([*checks.all, *([drills] if drills is not None else [])])
    told = Told(everything, of_assets, partial(CheapChecks, definitions, translator, settings))
    return _Pipeline(
        Shown(name, specs, {view.name: translator.key_of(view.name) for view in views}, of_assets, everything),
        assets,
        checks,
        drills,
        drain,
        stream_job(name, specs, topics, definitions, settings, told=told),
    )


def _by_asset(checks: Iterable[dg.AssetChecksDefinition]) -> dict[dg.AssetKey, list[dg.AssetCheckKey]]:
    """{asset: its checks}."""
    found: dict[dg.AssetKey, list[dg.AssetCheckKey]] = {}
    for key in sorted(key for each in checks for key in each.check_keys):
        found.setdefault(key.asset_key, []).append(key)
    return found


def _refresh_job(pipelines: Sequence[_Pipeline]) -> UnresolvedAssetJobDefinition:
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
    lake = LakeLayout(settings.lake)
    return Hindrances(Catalog(lake).definitions(), WholeHeads(lake))


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
        plan_of=lambda view: compiled(view, catalog),
        server_url=settings.server.url,
        name_map=catalog.name_map,
    )
    client = DrainClient()
    specs = [spec for definition in everything for spec in translator.specs(definition)]
    made = (_pipeline_of(name, each, translator, settings, client, specs) for name, each in whole.items())
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
    pipelines: Sequence[_Pipeline], settings: Settings
) -> list[dg.JobDefinition | UnresolvedAssetJobDefinition]:
    """The jobs over all pipelines."""
    shown = {table: key for pipeline in pipelines for table, key in pipeline.tables().items()}
    signs = [each.checks.health_checks for each in pipelines if each.checks.health_checks is not None]
    expecting = [each.checks.expectations for each in pipelines if each.checks.expectations is not None]
    proofs = [each.checks.proofs for each in pipelines if each.checks.proofs is not None]
    drills = [each.drills for each in pipelines if each.drills is not None]
    checking = [
        check_job(
            "health_checks",
            signs,
            "Whether every view goes on, how fresh it is, and what was left out: from commits alone.",
        ),
        check_job("expectations", expecting, "What EXPECT says of every view, by Great Expectations: reads all rows."),
        check_job("proofs", proofs, "Every view against its SQL, its changelog and its digest: reads all rows."),
        check_job("drills", drills, "Every recovery of every view, rehearsed on copies and measured."),
    ]
    refreshing = [_refresh_job(pipelines)] if pipelines else []
    found = [*refreshing, *(each for each in checking if each is not None)]
    return [*found, compact_job(settings, shown), thin_job(), *lake_jobs(settings)]


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
