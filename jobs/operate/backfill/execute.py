"""The execution of a backfill: the rows of the period computed anew, proved, and stored as the difference.

    writer's lock ──> table is what its record says ──> rows of the period ──> equal to the view's SQL? ──> one commit

Nothing is stored unless all of it holds. A kill before the commit leaves the view as it was; after it, all is done.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog import replacements
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python.register import Library
from strandline.jobs.ivm.refresh.context import Heads, RunContext
from strandline.jobs.ivm.refresh.full_recompute import Part, backfill_decided
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.rules.stored import unmarked
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.operate.verify.opened import opened
from strandline.jobs.operate.verify.recompute import PartRows, check_recompute
from strandline.jobs.operate.verify.rows import check_digest
from strandline.jobs.operate.verify.subjects import subjects
from strandline.jobs.run.orphans import sole_writer
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, Text, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.backfill.plan import BackfillPlan
    from strandline.jobs.operate.verify.opened import Opened


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill came to.

    Attributes:
        computed: rows in the period, as they are now.
        inserted, deleted: rows by which they differ from what was stored.
        version: of the commit; None when nothing differs.
    """

    view: str
    computed: int
    inserted: int
    deleted: int
    version: int | None
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


def execute_backfill(settings: Settings, plan: BackfillPlan, steps: Steps) -> BackfillResult:
    """Carry out a plan, without a JVM, at the version vector where the view stands when its turn comes.

    Raises:
        WriterBusy: the view's pipeline is running.
        RefreshFailed: the rows do not prove right, or the view got another definition meanwhile.
        StrandlineError: as of `backfill_decided`. Nothing was changed by any of these.
    """
    lake = Lake(settings.lake)
    writer = f"backfill/{os.getpid()}"
    with sole_writer(lake, plan.pipeline, writer):
        catalog = _unchanged(plan, lake)
        (subject,) = (each for each in subjects([plan.view], catalog, lake) if each.table == plan.view)
        table = opened(subject)
        steps.begin(f"comparing the {counted(table.record.rows, 'stored row')} with their record")
        _check_whole(table)
        steps.done(f"{counted(table.record.rows, 'row')} of version {table.version} are what was committed")
        with _surroundings(settings, lake, catalog, writer) as context:
            proof = _Proof(plan, table, catalog, context, steps)
            heads, item = Heads(lake), plan.item
            decision = decide(item.stages[-1], item.options.errors, item.letters(item.stages[-1]), heads)
            said = f"the rows whose {plan.column.name} is {plan.period}"
            part = Part(plan.condition, said, proof.check)
            steps.begin("computing the rows of the range", plan.rows_read)
            done = backfill_decided(context, heads, decision, item.owner(item.stages[-1]), part)
            steps.done("nothing differs" if done.version is None else f"version {done.version} has the difference")
    return BackfillResult(plan.view, proof.rows, done.inserted, done.deleted, done.version, round(done.seconds, 3))


class _Proof:
    """The proof of the computed rows, and what it has seen of them."""

    def __init__(self, plan: BackfillPlan, table: Opened, catalog: Catalog, context: RunContext, steps: Steps) -> None:
        assert context.functions is not None
        self.rows = 0
        self._plan, self._steps = plan, steps
        self._recomputed = partial(check_recompute, table, catalog, context.lake, context.functions)

    def check(self, rows: pa.Table) -> None:
        """Compare the rows with the view's SQL, computed by DuckDB without the engine's rules.

        Raises:
            RefreshFailed: they differ, or the SQL does not run over the inputs.
        """
        self.rows = rows.num_rows
        self._steps.done(f"{counted(rows.num_rows, 'row')} are computed anew")
        self._steps.begin("computing them again from the view's SQL, to compare", self._plan.rows_read)
        outcome = self._recomputed(part=PartRows(rows, self._plan.condition))
        if outcome.ok is None:
            raise RefreshFailed(sentence("the rows of '{}' cannot be proved: {}", Name(self._plan.view), outcome.what))
        if not outcome.ok:
            raise RefreshFailed(
                f"the rows computed anew do not prove right: {outcome.what}",
                where=Text(Name(self._plan.view)),
                hint=sentence(
                    "what it reads may itself be wrong: strandline verify --deep, or rebuild {}",
                    Name(self._plan.view, shlex.quote),
                ),
            )
        self._steps.done("they are the rows of the view's SQL")
        self._steps.begin("storing what differs")


def _check_whole(table: Opened) -> None:
    """Raise RefreshFailed unless the rows of the table are those of its record: others would only be hidden."""
    outcome = check_digest(table, reader.digest_of_rows(table.path, table.snapshot))
    if outcome.ok is False:
        raise RefreshFailed(outcome.what, where=Text(Name(table.subject.table)), hint=table.subject.hint)


def _unchanged(plan: BackfillPlan, lake: Lake) -> Catalog:
    """The catalog, in which the view is what was planned.

    Raises:
        RefreshFailed: it is another one, or about to be.
    """
    catalog = Catalog(lake)
    view = catalog.find(plan.view)
    begun = any(each.name == plan.view for each in replacements.begun(lake))
    if begun or not isinstance(view, View) or unmarked(plan.item.fingerprint) != view.fingerprint:
        raise RefreshFailed(
            sentence("'{}' was dropped or gets another definition", Name(plan.view)),
            hint=f"type: strandline run {plan.pipeline}",
        )
    return catalog


@contextmanager
def _surroundings(settings: Settings, lake: Lake, catalog: Catalog, writer: str) -> Iterator[RunContext]:
    """The surroundings of the computation: the DuckDB engine of this process, and the functions that users wrote."""
    functions = Library(catalog.functions.values(), settings.functions.modules)
    with DuckDBEngine(*settings.kernel_size) as duckdb_engine:
        yield RunContext(None, lake, writer, functions, duckdb_engine, "duckdb")
