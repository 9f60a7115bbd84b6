"""Refreshes the views of a pipeline, each after what it reads, independent ones side by side.

    level 0: keyed sources       level 1: views over logs and tables       level 2: views over views …

A view that fails stops there, with what depends on it; the others go on.
"""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.errors import RefreshFailed
from jobs.ivm.refresh import StageResult, refresh_stage
from jobs.sql.model import Definition, InsertQuery, Source, View
from jobs.sql.plan import plan
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from jobs.ivm.stage import Plan
    from jobs.sql.catalog import Catalog
    from state_store.layout import Lake

# Beside each other, small refreshes overlap their planning and job starts; more than four only queue on few cores
# (measured: four views at once 2.7 s, eight 5.5 s).
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Maintained:
    """One definition with its plan: what a refresh needs."""

    definition: Definition
    plan: Plan
    fingerprint: str

    @property
    def name(self) -> str:
        """The definition's name: unique also among the queries that insert into one stream."""
        return self.definition.name

    @property
    def target(self) -> str:
        """The table it maintains."""
        return self.definition.target if isinstance(self.definition, InsertQuery) else self.definition.name

    def vector_key(self, stage_input: str) -> str | None:
        """Several queries may feed one stream from one input: each keeps a vector entry of its own."""
        return f"{self.name}/{stage_input}" if isinstance(self.definition, InsertQuery) else None


def maintained(definitions: Sequence[Definition], catalog: Catalog) -> list[list[Maintained]]:
    """The maintained definitions of a pipeline in levels: a level reads earlier levels only.

    What a definition reads of other pipelines does not count: it is read as it stands.
    """
    todo = [
        Maintained(d, plan(d, catalog), _fingerprint(d))
        for d in definitions
        if not (isinstance(d, Source) and d.kind == "stream")
    ]
    levels: list[list[Maintained]] = []
    while todo:
        waiting = {m.target for m in todo}
        level = [m for m in todo if not (set(m.plan.inputs) - {m.target}) & waiting]
        if not level:
            names = ", ".join(sorted(waiting))
            raise RefreshFailed(f"the definitions {names} read each other in a circle")
        levels.append(level)
        todo = [m for m in todo if m not in level]
    return levels


def _fingerprint(definition: Definition) -> str:
    if isinstance(definition, View | InsertQuery):
        return definition.fingerprint
    columns = ";".join(f"{c.name} {c.type}{' KEY' if c.key else ''}" for c in definition.columns)
    return hashlib.sha256(columns.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Refreshed:
    """What a refresh of all views did."""

    stages: tuple[tuple[StageResult, float], ...]
    """Each stage's result with its wall-clock seconds."""
    failures: dict[str, StrandlineError]


def refresh_all(
    spark: SparkSession, lake: Lake, levels: Sequence[Sequence[Maintained]], writer: str, stopped: frozenset[str]
) -> Refreshed:
    """Bring every view to the present heads of its inputs.

    Args:
        stopped: targets that failed before and are left alone, with what depends on them.
    """
    results: list[tuple[StageResult, float]] = []
    failures: dict[str, StrandlineError] = {}
    broken = set(stopped)

    def one(item: Maintained) -> list[tuple[StageResult, float]] | StrandlineError:
        try:
            return _refresh(spark, lake, item, writer)
        except StrandlineError as error:
            return error
        except Exception as error:  # a fault inside Spark: the view stops, typed, with the cause kept
            failed = RefreshFailed(f"view '{item.name}' stopped: {_first_line(error)}", where=item.target)
            failed.__cause__ = error
            return failed

    with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE, thread_name_prefix="refresh") as pool:
        for level in levels:
            # Queries into one target write one table: they go one after the other, so a level is cut by target.
            for batch in _distinct_targets([m for m in level if not ({m.target, *m.plan.inputs} & broken)]):
                for item, outcome in zip(batch, pool.map(one, batch), strict=True):
                    if isinstance(outcome, StrandlineError):
                        failures[item.target] = outcome
                    else:
                        results.extend(outcome)
            broken |= {m.target for m in level if {m.target, *m.plan.inputs} & broken} | set(failures)
    return Refreshed(tuple(results), failures)


def _refresh(spark: SparkSession, lake: Lake, item: Maintained, writer: str) -> list[tuple[StageResult, float]]:
    done: list[tuple[StageResult, float]] = []
    for stage in item.plan.stages:
        began = time.monotonic()
        key = item.vector_key(stage.input.name)
        result = refresh_stage(spark, lake, stage, item.fingerprint, writer, vector_key=key)
        done.append((result, time.monotonic() - began))
    return done


def _distinct_targets(items: Sequence[Maintained]) -> list[list[Maintained]]:
    batches: list[list[Maintained]] = []
    for item in items:
        home = next((b for b in batches if item.target not in {m.target for m in b}), None)
        if home is None:
            batches.append([item])
        else:
            home.append(item)
    return batches


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
