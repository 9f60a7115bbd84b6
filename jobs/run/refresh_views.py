"""Refreshes the views of a pipeline, each after what it reads, independent ones side by side.

    level 0: keyed sources       level 1: views over logs and tables, shared stages       level 2: views over those …

A view that fails stops there, with what depends on it; the others go on. One that breaks a blocking expectation is
fresh, and what depends on it goes on from the version before.

Several attempts of one refresh may be at work at once: Spark starts a slow task a second time, and again the task of a
worker that it has lost and that is not dead yet. Each epoch is committed by one of them. The others are not done then,
and nothing is wrong: they go on from where that one came to, and whichever ends first has the result of all.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.jobs.expect.expectations import asked_of, read_approval, validate, write_approval
from strandline.jobs.ivm.refresh.context import Heads
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.refresh import refresh_decided
from strandline.jobs.model.errors import ExpectationBroken, RefreshFailed
from strandline.jobs.model.tables import input_of
from strandline.jobs.run.schedule import gated_in, read_from_outside
from strandline.jobs.run.untouched import Untouched
from strandline.state_store.commits import Reached
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import CommitConflict, InputReplaced, StrandlineError, VectorMismatch
from strandline.state_store.failpoints import failpoint
from strandline.state_store.storage_verbs import Requests
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.expect.expectations import Approval
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import StageResult
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head, TableVersion
    from strandline.state_store.layout import LakeLayout


# The approval of a refresh: a table with blocking expectations is validated before anything is computed from it.
#
# It stays as fresh as it was; what reads it waits at the version that was approved last, and goes on by itself once a
# later one holds.


def approve(lake: LakeLayout, heads: Heads, item: RefreshUnit) -> ExpectationBroken | None:
    """Validate the head of an item's table, unless that was done before, and note what it came to.

    Returns:
        what is wrong with it; None when its expectations hold.

    Raises:
        CorruptState, VersionGone: the rows, or the approval, do not read back. Nothing is approved.
    """
    head = heads.find(item.target)
    if head is None or not item.blocking:
        return None
    asked = asked_of(item.blocking)
    known = read_approval(lake, item.target)
    if not known.covers(head, asked):
        _, verdicts = validate(lake.table(item.target), item.blocking, head.version)
        wrong = "; ".join(f"{each.check}: {each.what}" for each in verdicts if each.ok is not True)
        known = known.refusing(head, asked, wrong, now_ms()) if wrong else known.approving(head, asked)
        failpoint("before-approval")
        write_approval(lake, item.target, known)
    return _broken(item.target, known) if known.refused is not None else None


def _broken(table: str, approval: Approval) -> ExpectationBroken:
    assert approval.refused is not None
    stay = f"stays at its version {approval.approved.version}" if approval.approved is not None else "waits"
    return ExpectationBroken(
        sentence(
            "version {} of '{}' breaks {}; what reads it {}", approval.refused.version, Name(table), approval.why, stay
        ),
        where=Text(Name(table)),
        hint="correct what it is computed from, or the expectation; the next refresh looks again",
    )


# Beside each other, small refreshes overlap their planning and job starts; more than four only queue on few cores
# (measured: four views at once 2.7 s, eight 5.5 s).
_SIDE_BY_SIDE = 4
_AGAIN: Final = 4
"""How often an attempt that lost a race goes on: each time another one has come further, and there are two or three."""


@dataclass(frozen=True)
class Refreshed:
    """The outcome of a refresh of all views."""

    stages: tuple[StageResult, ...]
    failures: dict[str, StrandlineError]
    """By table: the one that failed, and where views share it also theirs."""
    held: dict[str, ExpectationBroken] = field(default_factory=dict)
    """By table: what is wrong with its head, from which nothing is computed."""
    requests: Requests = field(default_factory=Requests, compare=False)
    """To object stores, by processes other than the one that asked for the refresh."""
    reached: dict[str, Reached] = field(default_factory=dict, compare=False)
    """By table: what it reflects now, of those whose vectors stay behind."""


_RACES: Final = (CommitConflict, VectorMismatch)
"""The errors of an attempt that met the commits of another one."""
_LOST: Final = (*_RACES, InputReplaced)
"""And one that may be so, or come of inputs that were compacted since this attempt saw them: a second look tells."""


def refresh_all(
    context: RunContext,
    levels: Sequence[Sequence[RefreshUnit]],
    stopped: frozenset[str],
    upto: Mapping[str, int] | None = None,
) -> Refreshed:
    """Bring every view to the present heads of its inputs. What another attempt has committed meanwhile is not made
    again.

    Args: as of `_refreshed`.
    """
    done = _refreshed(context, levels, stopped, upto)
    for number in range(_AGAIN):
        errors = _LOST if number == 0 else _RACES
        lost = {table for table, error in done.failures.items() if isinstance(error, errors)}
        if not lost:
            break
        others = {table: error for table, error in done.failures.items() if table not in lost}
        again = _refreshed(context, levels, stopped | others.keys(), upto)
        reached = done.reached | again.reached
        done = Refreshed((*done.stages, *again.stages), others | again.failures, again.held, reached=reached)
    return done


def _refreshed(
    context: RunContext,
    levels: Sequence[Sequence[RefreshUnit]],
    stopped: frozenset[str],
    upto: Mapping[str, int] | None,
) -> Refreshed:
    """One pass over all levels.

    What comes from outside (event logs, tables of other pipelines) is read at one version throughout, so that the
    stages of a view agree on it.

    Args:
        stopped: tables that failed before and are left alone, with what depends on them.
        upto: version per table that is read, to stop there; others are read at their heads.
    """
    results: list[StageResult] = []
    failures: dict[str, StrandlineError] = {}
    held: dict[str, ExpectationBroken] = {}
    broken = set(stopped)
    heads = Heads(context.lake, read_from_outside(levels), gated_in(levels))
    untouched = Untouched(context, heads) if upto is None else None
    reach = _Reach(heads, untouched)

    def one(item: RefreshUnit) -> list[StageResult] | StrandlineError:
        try:
            done = _refresh(context, heads, item, upto, untouched=item.name in others)
            wrong = approve(context.lake, heads, item)
            if wrong is not None:
                held[item.target] = wrong
            return done
        except StrandlineError as error:
            return error
        except Exception as error:  # a fault inside Spark: the view stops, typed, with the cause kept
            failed = RefreshFailed(
                sentence("view '{}' stopped: {}", Name(item.name), _first_line(error)), where=item.target
            )
            failed.__cause__ = error
            return failed

    with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE, thread_name_prefix="refresh") as pool:
        for level in levels:
            whole = [item for item in level if not ({item.target, *item.inputs} & broken)]
            resting, others = ({}, frozenset[str]()) if untouched is None else untouched.find(whole)
            results.extend(resting.values())
            reach.rest(whole)
            # Queries into one target write one table: they go one after the other, so a level is cut by target.
            for group in _distinct_targets([item for item in whole if item.name not in resting]):
                for item, outcome in zip(group, pool.map(one, group), strict=True):
                    if isinstance(outcome, StrandlineError):
                        failures.update(dict.fromkeys((item.target, *item.serves), outcome))
                        continue
                    results.extend(outcome)
                    reach.done(item, outcome)
            broken |= {m.target for m in level if {m.target, *m.inputs} & broken} | set(failures)
    return Refreshed(tuple(results), failures, held, reached=reach.noted())


class _Reach:
    """What the tables of one pass reflect beyond their vectors: the heads of what they were refreshed from.

    Nothing is noted of a pass that stops at other versions: it has no `Untouched`.
    """

    def __init__(self, heads: Heads, untouched: Untouched | None) -> None:
        self._heads = heads
        self._untouched = untouched
        self._inputs: dict[str, dict[str, TableVersion]] = {}
        self._tables: dict[str, Head] = {}

    def rest(self, items: Sequence[RefreshUnit]) -> None:
        """Note those of the units that are not computed, since nothing touches them."""
        if self._untouched is None:
            return
        for item in items:
            for table, head in self._untouched.tables(item).items():
                self._add(item, table, head)

    def done(self, item: RefreshUnit, results: Sequence[StageResult]) -> None:
        """Note a unit that was refreshed. Where an input was not there, nothing was."""
        if self._untouched is None:
            return
        for result in results:
            head = self._heads.find(result.table) if result.to_vector else None
            if head is not None:
                self._add(item, result.table, head)
        self._untouched.done(item, results)

    def _add(self, item: RefreshUnit, table: str, head: Head) -> None:
        assert self._untouched is not None
        self._tables[table] = head
        for entry, before in head.record.vector.items():
            name = input_of(entry)
            if entry not in (name, f"{item.vector_prefix}/{name}"):
                continue  # of another query into the same stream
            newest = self._untouched.input(name)
            if newest is not None and newest.version > before.version:
                self._inputs.setdefault(table, {})[entry] = newest.at

    def noted(self) -> dict[str, Reached]:
        """By table; of a table that several queries feed, with the inputs of all of them."""
        found = {}
        for table, inputs in self._inputs.items():
            version, record = self._tables[table].version, self._tables[table].record
            found[table] = Reached(version, record.table, record.digest, record.fingerprint, inputs)
        return found


def _refresh(
    context: RunContext, heads: Heads, item: RefreshUnit, upto: Mapping[str, int] | None, *, untouched: bool
) -> list[StageResult]:
    done: list[StageResult] = []
    for stage in item.stages:
        decision = decide(stage, item.options.errors, item.letters(stage), heads)
        owner, refresh = item.owner(stage), item.options.refresh
        done += refresh_decided(context, heads, decision, owner, refresh, upto=upto, untouched=untouched)
    return done


def _distinct_targets(items: Sequence[RefreshUnit]) -> list[list[RefreshUnit]]:
    groups: list[list[RefreshUnit]] = []
    met: Counter[str] = Counter()
    for item in items:
        if met[item.target] == len(groups):
            groups.append([])
        groups[met[item.target]].append(item)
        met[item.target] += 1
    return groups


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
