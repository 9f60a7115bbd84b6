"""Verdicts of quality checks in Dagster's form: the result of a run, or an evaluation outside of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from strandline.orchestration.roles import identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.expect.verdict import Verdict


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
    details = {"details": dg.MetadataValue.md(verdict.markdown)} if verdict.markdown else {}
    return {**metadata, **verdict.numbers, **details}
