"""The asset checks of a pipeline, by what they cost: three multi-asset checks, each of which may be run by itself.

| op | checks | when |
| --- | --- | --- |
| `PIPELINE__health_checks` | state, freshness, dead letters, late rows: from commits | after each drain, every hour |
| `PIPELINE__expectations` | what EXPECT says, by Great Expectations | after each drain |
| `PIPELINE__proofs` | equal to recomputation, changelog folds, digest, counts: all rows are read | every night |

Health checks also look how far each changelog topic is: an observation of the topic's asset, not a check.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.data_docs import write_docs
from strandline.jobs.expect.validate import validate
from strandline.jobs.expect.verdict import Verdict
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.options import Expectation, Ownership
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.quality.checks import HEALTH_CHECKS, PROOFS, HealthChecks, prove, with_quarantine
from strandline.jobs.operate.quality.freshness import Waiting
from strandline.orchestration.changelog_topics import ChangelogTopics
from strandline.orchestration.metadata import data_docs
from strandline.orchestration.roles import identifier
from strandline.orchestration.translator import Translator
from strandline.orchestration.verdicts import evaluation_of, result_of
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout


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
    signs = _signs(settings)
    for each in definitions:
        if isinstance(each, InsertQuery):
            continue
        key = translator.key_of(each.name)
        if isinstance(each, View):
            for name in HEALTH_CHECKS:
                yield evaluation_of(signs.check(each, name), key)
        wanted = Ownership.read(each.options).expectations
        if wanted:
            about, verdicts = _validated(settings, each.name, wanted)
            for one, verdict in zip(wanted, verdicts, strict=True):
                yield evaluation_of(verdict, key, about, blocking=one.blocking)


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
            description=f"Great Expectations: `{each.type}`.",
            metadata={"arguments": dg.MetadataValue.json(dict(each.arguments)), "severity": each.severity},
        )


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
        catalog = Catalog(lake)
        for view in views:
            key = translator.key_of(view.name)
            selected = _selected(context, key)
            for verdict in prove(view, settings, catalog, lake) if selected else ():
                if verdict.check in selected:
                    yield result_of(verdict, key)

    return proofs


def _spec(view: View, name: str, description: str, translator: Translator) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=translator.key_of(view.name), description=description)


def _selected(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[str]:
    """The names of the asset's checks that this run makes."""
    keys: Iterable[dg.AssetCheckKey] = context.op_execution_context.selected_asset_check_keys
    return sorted(each.name for each in keys if each.asset_key == key)
