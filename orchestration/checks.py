"""The asset checks of a pipeline, by what they cost: three multi-asset checks, each of which may be run by itself.

| op | checks | when |
| --- | --- | --- |
| `PIPELINE__health_checks` | state, freshness, dead letters, late rows: from commits | after each drain, every hour |
| `PIPELINE__expectations` | what EXPECT says, by Great Expectations | after each drain, every hour |
| `PIPELINE__proofs` | equal to recomputation, changelog folds, digest, counts: all rows are read | every night |

Beside a stream the first two are made as its rows change: `orchestration.told_checks`.

Health checks also look how far each changelog topic is: an observation of the topic's asset, not a check.

Recovery drills as asset checks: one for each scenario of each view, run on copies of the lake.

What a recovery took and lost, and whether its digest was equal, goes out as an observation of the view's asset as well,
so that Dagster plots it over time.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import Verdict, validate, write_docs
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.definitions import Definition, Expectation, InsertQuery, Ownership, Source, View
from strandline.jobs.model.forecast import PROOF, Forecast, Forecasts, whole
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.health_checks import HEALTH_CHECKS, HealthChecks, Waiting
from strandline.jobs.operate.recovery.drill_history import DrillResult, record
from strandline.jobs.operate.recovery.image import numbers
from strandline.jobs.operate.recovery.scenarios import SCENARIOS, plan_drills, run_drill
from strandline.jobs.operate.verify.verify import PROOFS, prove, with_quarantine
from strandline.orchestration.assets import ChangelogTopics, data_docs, evaluation_of, identifier, result_of
from strandline.orchestration.translator import Translator
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.storage import lake_path

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.


@dataclass(frozen=True)
class PipelineChecks:
    """The checks of one pipeline; None where it has no such checks."""

    health_checks: dg.AssetChecksDefinition | None
    expectations: dg.AssetChecksDefinition | None
    proofs: dg.AssetChecksDefinition | None

    @property
    def cheap(self) -> list[dg.AssetChecksDefinition]:
        """Those that are made after every drain."""
        return [each for each in (self.health_checks, self.expectations) if each is not None]

    @property
    def all(self) -> list[dg.AssetChecksDefinition]:
        """All of them."""
        return [*self.cheap, *([self.proofs] if self.proofs is not None else [])]


def pipeline_checks(
    pipeline: str, definitions: Sequence[Definition], translator: Translator, settings: Settings
) -> PipelineChecks:
    """The checks of a pipeline's views, and of whatever says EXPECT."""
    views = [each for each in definitions if isinstance(each, View)]
    expecting = [
        each for each in definitions if not isinstance(each, InsertQuery) and Ownership.read(each.options).expectations
    ]
    return PipelineChecks(
        _health_checks(pipeline, views, translator, settings) if views else None,
        _expectations(pipeline, expecting, translator, settings) if expecting else None,
        _proofs(pipeline, views, translator, settings) if views else None,
    )


def _health_checks(
    pipeline: str, views: Sequence[View], translator: Translator, settings: Settings
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{identifier(pipeline)}__health_checks",
        specs=[_spec(v, *each, translator) for v in views for each in HEALTH_CHECKS.items()],
        can_subset=True,
    )
    def health_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        signs = _signs(settings)
        for view in views:
            key = translator.key_of(view.name)
            for name in _selected(context, key):
                yield result_of(signs.check(view, name), key)
        for event in ChangelogTopics(settings, views).events():
            context.op_execution_context.log_event(event)

    return health_checks


def _expectations(
    pipeline: str, definitions: Sequence[Source | View], translator: Translator, settings: Settings
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{identifier(pipeline)}__expectations",
        specs=[spec for each in definitions for spec in _expected(each, translator.key_of(each.name))],
        can_subset=True,
    )
    def expectations(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for each in definitions:
            key = translator.key_of(each.name)
            selected = _selected(context, key)
            wanted = [one for one in Ownership.read(each.options).expectations if identifier(one.name) in selected]
            if not wanted:
                continue
            about, verdicts = _validated(settings, each.name, wanted)
            for verdict in verdicts:
                yield result_of(verdict, key, about)

    return expectations


def cheap_evaluations(
    definitions: Sequence[Definition], translator: Translator, settings: Settings
) -> Iterator[dg.AssetCheckEvaluation]:
    """The evaluations of a pipeline's cheap checks, made at once.

    For a step that does not materialize all of its assets: Dagster leaves out the checks' own steps after it.
    """
    yield from health_evaluations([each for each in definitions if isinstance(each, View)], translator, settings)
    for each in definitions:
        if not isinstance(each, InsertQuery):
            yield from expectation_evaluations(each, translator, settings)


def health_evaluations(
    views: Sequence[View], translator: Translator, settings: Settings
) -> Iterator[dg.AssetCheckEvaluation]:
    """The evaluations of the health checks of some views."""
    signs = _signs(settings)
    for view in views:
        for name in HEALTH_CHECKS:
            yield evaluation_of(signs.check(view, name), translator.key_of(view.name))


def expectation_evaluations(
    definition: Source | View, translator: Translator, settings: Settings
) -> Iterator[dg.AssetCheckEvaluation]:
    """The evaluations of what a definition expects."""
    wanted = expectations_of(definition)
    if wanted:
        about, verdicts = _validated(settings, definition.name, wanted)
        for one, verdict in zip(wanted, verdicts, strict=True):
            yield evaluation_of(verdict, translator.key_of(definition.name), about, blocking=one.blocking)


def expectations_of(definition: Source | View) -> Sequence[Expectation]:
    """What EXPECT says of a definition."""
    return Ownership.read(definition.options).expectations


def _signs(settings: Settings) -> HealthChecks:
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    return HealthChecks(catalog, lake, Waiting(catalog, WholeHeads(lake), open_log(settings, lake)), now_ms())


def _validated(settings: Settings, table: str, wanted: Sequence[Expectation]) -> tuple[dict[str, Any], list[Verdict]]:
    """What was validated, as metadata, and what it came to, which is also written for people. A table that does not
    read has version 0."""
    lake = LakeLayout(settings.lake)
    version, verdicts = _verdicts(lake, table, wanted)
    return {"delta version": version, **data_docs(table, settings)}, verdicts


def _verdicts(lake: LakeLayout, table: str, wanted: Sequence[Expectation]) -> tuple[int, list[Verdict]]:
    try:
        version, validated = validate(lake.table(table), wanted)
        verdicts = [with_quarantine(verdict, lake, table, one) for one, verdict in zip(wanted, validated, strict=True)]
    except StrandlineError as error:
        return 0, [Verdict(one.name, False, str(error), one.severity) for one in wanted]
    write_docs(lake, table, version, [*zip(wanted, verdicts, strict=True)])
    return version, verdicts


def _expected(definition: Source | View, key: dg.AssetKey) -> Iterator[dg.AssetCheckSpec]:
    for each in Ownership.read(definition.options).expectations:
        yield dg.AssetCheckSpec(
            identifier(each.name),
            asset=key,
            blocking=each.blocking,
            description=_said(each),
            metadata={"arguments": dg.MetadataValue.json(dict(each.arguments)), "severity": each.severity},
        )


def _said(expectation: Expectation) -> str:
    """The description of an expectation's check: its page shows no metadata of what is checked."""
    given = ", ".join(f"`{name}`: `{json.dumps(value)}`" for name, value in expectation.arguments.items())
    return f"Great Expectations: `{expectation.type}`{f' with {given}' if given else ''}."


def _proofs(
    pipeline: str, views: Sequence[View], translator: Translator, settings: Settings
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{identifier(pipeline)}__proofs",
        specs=[_spec(v, *each, translator) for v in views for each in PROOFS.items()],
        can_subset=True,
    )
    def proofs(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lake = LakeLayout(settings.lake)
        catalog, forecasts = Catalog(lake), Forecasts(lake)
        selection = {view.name: _selected(context, translator.key_of(view.name)) for view in views}
        foreseen = {name: forecasts.of(PROOF, name) for name, selected in selection.items() if selected}
        context.log.info("These proofs will take: %s", whole(foreseen.values()))
        for view in views:
            key, selected = translator.key_of(view.name), selection[view.name]
            began = time.monotonic()
            verdicts = list(prove(view, settings, catalog, lake)) if selected else []
            took = {"proof seconds": round(time.monotonic() - began, 3)}  # of all of them
            if selected:
                took |= _foreseen("proof", foreseen[view.name])
            for verdict in verdicts:
                if verdict.check in selected:
                    yield result_of(verdict, key, took)

    return proofs


def _foreseen(what: str, forecast: Forecast) -> dict[str, float]:
    """The forecast as it stands beside what was measured then; nothing where nothing was known."""
    return {} if forecast.seconds is None else {f"{what} seconds, forecast": forecast.seconds}


def _spec(view: View, name: str, description: str, translator: Translator) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=translator.key_of(view.name), description=description)


def _selected(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[str]:
    """The names of the asset's checks that this run makes."""
    keys: Iterable[dg.AssetCheckKey] = context.op_execution_context.selected_asset_check_keys
    return sorted(each.name for each in keys if each.asset_key == key)


# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.


def pipeline_drills(
    pipeline: str, views: Sequence[View], translator: Translator, settings: Settings
) -> dg.AssetChecksDefinition | None:
    """The drills of a pipeline's views; None when it has none."""
    if not views:
        return None
    keys = {translator.key_of(view.name): view.name for view in views}
    names = {_check_of(each.name): each.name for each in SCENARIOS}

    @dg.multi_asset_check(
        name=f"{identifier(pipeline)}__drills",
        specs=[
            dg.AssetCheckSpec(
                _check_of(each.name),
                asset=key,
                description=f"Lost on a copy, and won back within {each.target_seconds:g} s: {each.what}.",
            )
            for key in keys
            for each in SCENARIOS
        ],
        can_subset=True,
        # One after the other: drills that run side by side measure each other.
        pool="drills",
    )
    def drills(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = sorted(context.op_execution_context.selected_asset_check_keys)
        backup, forecasts = _standing_backup(settings), Forecasts(LakeLayout(settings.lake))
        foreseen = {key: forecasts.of(names[key.name], keys[key.asset_key]) for key in selected}
        context.log.info("These drills will take: %s", whole(foreseen.values()))
        for key in selected:
            (drill,) = plan_drills(settings, [keys[key.asset_key]], [names[key.name]])
            done = run_drill(settings, drill, backup=backup)
            record(LakeLayout(settings.lake), [done])
            if done.rto_seconds is not None:
                observed: dict[str, float] = {
                    f"recovery seconds: {done.drill}": done.rto_seconds,
                    f"lost versions: {done.drill}": done.rpo_versions,
                    f"lost rows: {done.drill}": done.rpo_rows,
                    # As a number, so that it is plotted: a line that falls to 0.
                    f"digest equal: {done.drill}": float(done.digest_equal is True),
                }
                context.op_execution_context.log_event(dg.AssetObservation(key.asset_key, metadata=observed))
            yield _result(done, key, foreseen[key])

    return drills


def _standing_backup(settings: Settings) -> LakePath | None:
    """The backups that the schedule makes, for the drill that restores one; None where there are none yet."""
    if settings.backup.destination is None:
        return None
    found = lake_path(settings.backup.destination, settings.storage.options())
    return found if numbers(found) else None


def _check_of(scenario: str) -> str:
    """The name of the check that drills a scenario."""
    return f"drill_{identifier(scenario.replace('-', '_'))}"


def _result(done: DrillResult, key: dg.AssetCheckKey, foreseen: Forecast) -> dg.AssetCheckResult:
    """The result in Dagster's form. A loss that could not be staged is not green: it warns, and says why."""
    metadata: dict[str, Any] = {
        "target seconds": done.target_seconds,
        "lost versions": done.rpo_versions,
        "lost rows": done.rpo_rows,
        "rows": done.rows,
        **_foreseen("drill", foreseen),
    }
    if done.seconds is not None:
        metadata["drill seconds"] = done.seconds
    if done.rto_seconds is not None:
        metadata["recovery seconds"] = done.rto_seconds
    if done.digest_equal is not None:
        metadata["digest equal"] = done.digest_equal
    return dg.AssetCheckResult(
        passed=done.passed is True,
        asset_key=key.asset_key,
        check_name=key.name,
        severity=dg.AssetCheckSeverity.WARN if done.passed is None else dg.AssetCheckSeverity.ERROR,
        description=done.why,
        metadata=metadata,
    )
