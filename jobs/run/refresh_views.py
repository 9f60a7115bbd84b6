"""Refreshes the views of a pipeline, each after what it reads, independent ones side by side.

    level 0: keyed sources       level 1: views over logs and tables, shared stages       level 2: views over those …

A view that fails stops there, with what depends on it; the others go on.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jobs.ivm.refresh.error_policy import refresh_guarded
from jobs.ivm.refresh.refresh import StageResult, refresh_stage
from jobs.model import tables
from jobs.model.errors import RefreshFailed
from jobs.run.schedule import Maintained, maintained
from state_store import reader
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from jobs.functions.python.register import Library
    from state_store.layout import Lake

__all__ = ["Maintained", "Refreshed", "maintained", "refresh_all"]

# Beside each other, small refreshes overlap their planning and job starts; more than four only queue on few cores
# (measured: four views at once 2.7 s, eight 5.5 s).
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Refreshed:
    """What a refresh of all views did."""

    stages: tuple[tuple[StageResult, float], ...]
    """Each stage's result with its wall-clock seconds."""
    failures: dict[str, StrandlineError]
    """By table: the one that failed, and where views share it also theirs."""


def refresh_all(
    spark: SparkSession,
    lake: Lake,
    levels: Sequence[Sequence[Maintained]],
    writer: str,
    stopped: frozenset[str],
    functions: Library | None = None,
) -> Refreshed:
    """Bring every view to the present heads of its inputs.

    What comes from outside (event logs, tables of other pipelines) is read at one version throughout, so that the
    stages of a view agree on it.

    Args:
        stopped: tables that failed before and are left alone, with what depends on them.
        functions: those that users wrote, when the views may call them.
    """
    results: list[tuple[StageResult, float]] = []
    failures: dict[str, StrandlineError] = {}
    broken = set(stopped)
    upto = _heads(lake, levels)

    def one(item: Maintained) -> list[tuple[StageResult, float]] | StrandlineError:
        try:
            return _refresh(spark, lake, item, writer, upto, functions)
        except StrandlineError as error:
            return error
        except Exception as error:  # a fault inside Spark: the view stops, typed, with the cause kept
            failed = RefreshFailed(f"view '{item.name}' stopped: {_first_line(error)}", where=item.target)
            failed.__cause__ = error
            return failed

    with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE, thread_name_prefix="refresh") as pool:
        for level in levels:
            # Queries into one target write one table: they go one after the other, so a level is cut by target.
            for batch in _distinct_targets([m for m in level if not ({m.target, *m.inputs} & broken)]):
                for item, outcome in zip(batch, pool.map(one, batch), strict=True):
                    if isinstance(outcome, StrandlineError):
                        failures.update(dict.fromkeys((item.target, *item.serves), outcome))
                    else:
                        results.extend(outcome)
            broken |= {m.target for m in level if {m.target, *m.inputs} & broken} | set(failures)
    return Refreshed(tuple(results), failures)


def _heads(lake: Lake, levels: Sequence[Sequence[Maintained]]) -> dict[str, int]:
    """The versions of what is read and not maintained here."""
    items = [item for level in levels for item in level]
    names = {name for item in items for name in item.inputs} - {item.target for item in items}
    heads = {name: reader.head(lake.table(name)) for name in sorted(names)}
    return {name: head.version for name, head in heads.items() if head is not None}


def _refresh(
    spark: SparkSession,
    lake: Lake,
    item: Maintained,
    writer: str,
    upto: Mapping[str, int],
    functions: Library | None,
) -> list[tuple[StageResult, float]]:
    done: list[tuple[StageResult, float]] = []
    for stage in item.stages:
        began = time.monotonic()
        own = stage is item.stages[-1]
        refresh = partial(
            refresh_stage,
            spark,
            lake,
            fingerprint=item.fingerprint,
            writer=writer,
            upto=upto,
            # The inner stages of a query into a stream are the query's alone.
            vector_prefix=item.vector_prefix if own else None,
            option=item.options.refresh,
            functions=functions,
        )
        letters = tables.dead_letters(item.name if own else stage.table)
        for result in refresh_guarded(refresh, lake, stage, item.options.errors, letters):
            now = time.monotonic()
            done.append((result, now - began))
            began = now
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
