"""Verify: each table of a lake checked on its own, so that a broken one does not hide what is wrong elsewhere.

    log ─┬─> checkpoint                             the log itself, and what stands for its beginning
         ├─> files, deletion_vectors ─┬─> digest, row_count, feed     the rows, by three ways of counting
         │                            ├─> offsets                     an event log against its topic
         │                            └─> recompute (deep)            a view against its SQL, its dead letters too
         └─> definition, plan, vector, topic        what the rows come from

A check that stands on a failed one is skipped and says so.

The proofs of a view are those of its checks that read all of its rows, and so are made on a schedule.

| proof | holds when |
| --- | --- |
| `recompute` | DuckDB gets the same rows from the view's SQL over its inputs |
| `feed` | the changelog, applied in order, gives the rows |
| `digest`, `row_count` | the rows in the files are those that the record speaks of |
| `log`, `files`, … | as above |
| `counts` | no COUNT of the view is below zero |
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import Verdict
from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.functions.python import Library
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.ivm.compiled import compiled, stores_plans
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.operate.verify.findings import Check, Outcome, counted, failed, note_proofs, skipped
from strandline.jobs.operate.verify.inputs import (
    check_definition,
    check_known,
    check_offsets,
    check_plan,
    check_topic,
    check_vector,
)
from strandline.jobs.operate.verify.recompute import check_dead_letters, check_recompute, has_sql
from strandline.jobs.operate.verify.subjects import opened, subjects
from strandline.jobs.operate.verify.tables import (
    check_checkpoint,
    check_digest,
    check_feed,
    check_files,
    check_log,
    check_row_count,
    check_sums,
    check_vectors,
)
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StorageDenied, StorageUnavailable, StoreError, StrandlineError
from strandline.state_store.files import of_system
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Expectation
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.operate.verify.findings import Check
    from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.verify.subjects import Opened, Subject


# The report on one table: its checks are run here, and whatever a broken file makes of them becomes a finding.

_log = logging.getLogger("strandline.verify")


@dataclass
class Report:
    """The checks of one table so far."""

    subject: Subject
    checks: list[Check] = field(default_factory=list)

    def run(self, name: str, check: Callable[[], Outcome], prevented: str | None = None) -> bool | None:
        """Make a check and note what it found: whether all is well, None if it could not be made.

        Args:
            prevented: why the check cannot be made.
        """
        outcome = skipped(prevented) if prevented is not None else _outcome(check)
        self.add(name, outcome)
        return outcome.ok

    def add(self, name: str, outcome: Outcome) -> None:
        """Note what a check found; a failed one gets the table's place and way out where it has none of its own."""
        where, hint = outcome.where, outcome.hint
        if outcome.ok is False:
            where, hint = where or str(self.subject.path), hint or self.subject.hint
        self.checks.append(Check(self.subject.table, name, outcome.ok, outcome.what, where, hint))


def _outcome(check: Callable[[], Outcome]) -> Outcome:
    try:
        return check()
    except PermissionError as error:
        denied = of_system(error)
        return failed(denied.message, denied.where, denied.hint)
    except (StorageDenied, StorageUnavailable) as error:  # nothing is wrong with the table, and a rebuild mends nothing
        return failed(error.message, error.where, error.hint)
    except StoreError as error:
        # Its hint speaks to whoever reads the table; what mends it is the table's own way out.
        return failed(error.message, error.where)
    except StrandlineError as error:
        return failed(error.message, error.where, error.hint)
    except Exception as error:  # a broken file can make any library fail in any way, and the next table still counts
        _log.debug("a check failed without a type", exc_info=True)
        return failed(f"it cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def verify(
    settings: Settings,
    names: Sequence[str] = (),
    *,
    deep: bool = False,
    steps: Steps = UNWATCHED,
    took: dict[str, float] | None = None,
) -> list[Check]:
    """Check tables against their logs, files, histories and definitions. Nothing is changed; no JVM is started.

    Args:
        names: of definitions, for all their tables, or of tables; without names all tables of the lake.
        deep: each view's SQL is computed again as well, by DuckDB, in memory.
        steps: told of each table.
        took: to be filled with {definition: the seconds of the checks of its tables}.

    Returns:
        the checks, table by table. A fault of a table is a failed check, never an error.

    Raises:
        UnknownName: nothing has one of the names.
    """
    lake = LakeLayout(settings.lake)
    verifier = _Verifier(settings, lake, Catalog(lake), open_log(settings, lake), deep)
    chosen = subjects(names, verifier.catalog, lake)
    found: list[Check] = []
    for number, subject in enumerate(chosen, 1):
        steps.begin(sentence("verifying '{}', table {} of {}", Name(subject.table), number, len(chosen)))
        began = time.monotonic()
        found += verifier.checks(subject)
        if took is not None:
            took[subject.owner] = took.get(subject.owner, 0.0) + time.monotonic() - began
    return found


class _Verifier:
    """The checks of one lake."""

    def __init__(self, settings: Settings, lake: LakeLayout, catalog: Catalog, log: Log, deep: bool) -> None:
        self.catalog = catalog
        self._lake, self._log, self._deep = lake, log, deep
        self._library = Library(catalog.functions.values(), settings.functions.modules)
        # The offsets of the local log have no gaps.
        self._dense = not settings.kafka.bootstrap_servers

    def checks(self, subject: Subject) -> list[Check]:
        """The checks of one table, those that there are for its role."""
        report = Report(subject)
        if report.run("log", partial(check_log, self._lake, subject.table)) is not True:
            unknown = check_known(subject)
            if unknown is not None:
                report.add("definition", unknown)
            return report.checks
        table = opened(subject)
        report.run("checkpoint", partial(check_checkpoint, table))
        report.run("sums", partial(check_sums, table))
        report.run("definition", partial(check_definition, table))
        planned = subject.fault is None and (subject.role == "rows" or subject.queries)
        if planned and stores_plans(self._lake):
            report.run("plan", partial(check_plan, subject, self.catalog))
        if table.record.vector or subject.role in ("rows", "stage"):
            report.run("vector", partial(check_vector, table, self._lake))
        source = self._source(subject)
        if source is not None:
            report.run("topic", partial(check_topic, table, source, self._log))
        files = [report.run("files", partial(check_files, table))]
        files.append(report.run("deletion_vectors", partial(check_vectors, table)))
        prevented = "files of the head are broken" if False in files else None
        for name, check in self._of_rows(table).items():
            report.run(name, check, prevented)
        return report.checks

    def _of_rows(self, table: Opened) -> dict[str, Callable[[], Outcome]]:
        """The checks that read the rows."""
        rows = cache(partial(reader.digest_of_rows, table.path, table.snapshot))
        found: dict[str, Callable[[], Outcome]] = {
            "digest": lambda: check_digest(table, rows()),
            "row_count": lambda: check_row_count(table, rows()),
            "feed": lambda: check_feed(table, rows()),
        }
        source = self._source(table.subject)
        if source is not None:
            # A message that was logged is a record of a change stream, and no row.
            dense = self._dense and not source.foreign and not source.change_stream
            found["offsets"] = partial(check_offsets, table, source, self._lake, self._log, dense=dense)
        if self._deep and has_sql(table.subject, self.catalog):
            found["recompute"] = partial(check_recompute, table, self.catalog, self._lake, self._library)
        if self._deep and table.subject.keeps_aside:
            found["recompute"] = partial(check_dead_letters, table, self.catalog, self._lake, self._library)
        return found

    def _source(self, subject: Subject) -> Source | None:
        """The source whose records are in the table; None when they are rows of a view."""
        events = subject.role in ("event log", "dead letters")
        return subject.definition if events and isinstance(subject.definition, Source) else None


PROOFS: Final = {
    "recompute": "DuckDB gets the same rows from the view's SQL over its inputs.",
    "feed": "The changelog, applied in order, gives the rows.",
    "digest": "The rows in the files are those that the last commit speaks of.",
    "counts": "No COUNT of the view is below zero.",
    "storage": "The log, the files and the definition read back as they were written.",
}
"""{name of a check: what it says when it holds}; `storage` stands for all others of `verify`."""


def prove(view: View, settings: Settings, catalog: Catalog, lake: LakeLayout) -> list[Verdict]:
    """Make every proof of a view. A table without a commit has nothing to prove.

    Raises:
        UnknownName: the view is not in the catalog any more.
    """
    if reader.head(lake.table(view.name)) is None:
        return [Verdict(name, True, "no commit yet: nothing has come") for name in PROOFS]
    took: dict[str, float] = {}
    checks = verify(settings, [view.name], deep=True, took=took)
    note_proofs(lake, [view], checks, now_ms(), took)
    named = {"recompute": ("recompute",), "feed": ("feed",), "digest": ("digest", "row_count")}
    rest = tuple({each.check for each in checks} - {name for names in named.values() for name in names})
    found = [_folded(name, [c for c in checks if c.check in names]) for name, names in named.items()]
    return [*found, _counts(view, catalog, lake), _folded("storage", [c for c in checks if c.check in rest])]


def _folded(name: str, checks: Sequence[Check]) -> Verdict:
    """One verdict of several checks: the worst of them speaks."""
    broken = next((each for each in checks if each.ok is False), None)
    if broken is not None:
        hint = f"\n\n{broken.hint}" if broken.hint else ""
        return Verdict(name, False, f"{broken.table}: {broken.what}", markdown=f"`{broken.where}`{hint}")
    made = [each for each in checks if each.ok]
    if not made:
        why = checks[0].what if checks else "there is no such check of this view"
        return Verdict(name, None, why, "warn")
    return Verdict(name, True, made[-1].what, numbers={"checks": len(made)})


def _counts(view: View, catalog: Catalog, lake: LakeLayout) -> Verdict:
    """The visible counts: a negative one is an upstream fault, which the engine refuses to store."""
    try:
        names = _count_columns(compiled(view, catalog).stages[-1])
        if not names:
            return Verdict("counts", True, "no column of this view is a COUNT")
        import pyarrow.compute as pc

        rows = reader.read_rows(lake.table(view.name), columns=names)
        negative = {name: int(pc.sum(pc.less(rows[name], 0)).as_py() or 0) for name in names}
    except StrandlineError as error:
        return Verdict("counts", None, f"it could not be made: {error.message}", "warn")
    wrong = sum(negative.values())
    what = ", ".join(f"{count} rows have a negative {name}" for name, count in negative.items() if count)
    return Verdict("counts", wrong == 0, what or f"no negative {', '.join(names)}", numbers={"negative counts": wrong})


def _count_columns(stage: Stage) -> list[str]:
    """The visible columns that are a COUNT and nothing else."""
    if not isinstance(stage, AggregateStage):
        return []
    counts = {call.name for call in stage.aggregates if call.function == "COUNT"}
    columns = (each for each in stage.outputs if isinstance(each.expression, exp.Column))
    return [output.name for output in columns if output.expression.name in counts]


# The quarantine of an expectation: the rows that it keeps out of a view, which are in the view's dead letters.
#
# Great Expectations sees only the rows that are in the view, so its own verdict of such an expectation says nothing
# of those that are not.

_SAMPLES: Final = 10
"""Rows to look at, as many as Great Expectations gives of those that fail."""


def with_quarantine(verdict: Verdict, lake: LakeLayout, view: str, expectation: Expectation) -> Verdict:
    """The verdict of an expectation, with the number of the rows that it keeps out of the view, and some of them.

    Raises:
        VersionGone, CorruptState, ForeignWrite: the view's dead letters do not read.
    """
    if not expectation.quarantine:
        return verdict
    rows = _kept_out(lake, view, expectation)
    # Indented, so that nothing in a row is Markdown; JSON has no line ends.
    sample = "\n".join(f"    {row}" for row in sorted(rows)[:_SAMPLES])
    return replace(
        verdict,
        what=f"{verdict.what}; {counted(len(rows), 'row')} in quarantine",
        numbers={**verdict.numbers, "rows in quarantine": len(rows)},
        markdown=f"{verdict.markdown}\n\n### In quarantine\n\n{sample}" if rows else verdict.markdown,
    )


def _kept_out(lake: LakeLayout, view: str, expectation: Expectation) -> Sequence[str]:
    path = lake.table(tables.dead_letters(view))
    if reader.head(path) is None:
        return ()
    kept = reader.read_rows(path, columns=(REASON, ROW)).to_pylist()
    return [each[ROW] for each in kept if each[REASON].startswith(f"{BREAKS}{expectation.name} of ")]
