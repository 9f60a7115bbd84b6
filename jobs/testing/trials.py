"""Trials: the ways in which every test of a suite is run, each in a lake of its own, with the same outcome.

| trial | what it shows |
| --- | --- |
| as written | each step is one epoch, by DuckDB |
| cut | each step is cut into epochs at random places |
| killed | in each step, the process is killed at a random place of the epoch, and another one goes on |
| on Spark | each step is one epoch, by Spark's own plans |

The outcome of a step: tables as they are against what a test expects of them.

    python -m strandline.jobs.testing.trials PIPELINE …     drains these pipelines: a driver to be killed
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.definitions import OWNERSHIP_OPTIONS, Source
from strandline.jobs.model.errors import InvalidQuery, RefreshFailed
from strandline.jobs.model.settings import IngestSettings, KafkaSettings, RegistrySettings, Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import python_rows
from strandline.jobs.session.apply import apply
from strandline.jobs.testing.suite import (
    GivenEvent,
    RowsDiffer,
    TypedCase,
    TypedStep,
    net,
    row_text,
    rows_differ,
    typed,
)
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StrandlineError
from strandline.state_store.files import copy_to_disk, discard_folder, remove_folder
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline.jobs.testing.suite import ExpectedRows, Suite, TypedExpected, Values


@dataclass(frozen=True)
class Fault:
    """What is wrong with one table.

    Attributes:
        what: `rows`, `inserted`, `retracted` or `dead_letters`.
    """

    table: str
    what: str
    difference: RowsDiffer

    def lines(self) -> Iterator[str]:
        """The fault for people: a line for each row."""
        yield f"{self.what} of {self.table}:"
        yield from (f"  missing     {row_text(row)}" for row in self.difference.missing)
        yield from (f"  unexpected  {row_text(row)}" for row in self.difference.unexpected)

    def as_json(self) -> dict[str, Any]:
        """The fault as values of JSON."""
        missing, unexpected = (
            [row_text(row) for row in rows] for rows in (self.difference.missing, self.difference.unexpected)
        )
        return {"table": self.table, "what": self.what, "missing": missing, "unexpected": unexpected}


def _versions_of(settings: Settings, expected: Sequence[TypedExpected]) -> dict[str, int | None]:
    """The newest version of each table; None where there is none yet."""
    lake = LakeLayout(settings.lake)
    return {each.table: log.newest_version(lake.table(each.table)) for each in expected}


def check(settings: Settings, expected: Sequence[TypedExpected], before: Mapping[str, int | None]) -> list[Fault]:
    """Compare tables with what is expected of them; empty when all is as expected.

    Args:
        before: the version of each table before the step.

    Raises:
        CorruptState, ForeignWrite, VersionGone: a table cannot be read.
    """
    lake = LakeLayout(settings.lake)
    found: list[Fault] = []
    for each in expected:
        if each.rows is not None:
            found += _fault(each, "rows", each.rows, _rows(lake, each))
        if each.inserted is not None or each.retracted is not None:
            inserted, retracted = net(_changes(lake, each, before[each.table]))
            if each.inserted is not None:
                found += _fault(each, "inserted", each.inserted, inserted)
            if each.retracted is not None:
                found += _fault(each, "retracted", each.retracted, retracted)
        if each.dead_letters is not None:
            found += _fault(each, "dead_letters", each.dead_letters, _dead_letters(lake, each.table))
    return found


def _fault(each: TypedExpected, what: str, wanted: ExpectedRows, actual: Sequence[Values]) -> list[Fault]:
    seen = [{column: row.get(column) for column in wanted.columns or row} for row in actual]
    difference = rows_differ(wanted.rows, seen)
    return [Fault(each.table, what, difference)] if difference else []


def _rows(lake: LakeLayout, each: TypedExpected) -> list[Values]:
    path = lake.table(each.table)
    return [] if log.newest_version(path) is None else _values(reader.read_rows(path, None, list(each.types)), each)


def _changes(lake: LakeLayout, each: TypedExpected, after: int | None) -> list[tuple[Values, int]]:
    path = lake.table(each.table)
    if log.newest_version(path) is None:
        return []
    changes = reader.read_changes(path, after)
    weights = changes.column(WEIGHT).to_pylist()
    return list(zip(_values(changes.select(list(each.types)), each), weights, strict=True))


def _values(rows: pa.Table, each: TypedExpected) -> list[Values]:
    return [dict(zip(each.types, row, strict=True)) for row in python_rows(rows, list(each.types.values()))]


def _dead_letters(lake: LakeLayout, table: str) -> list[Values]:
    """The rows on which an expression of the view fails, and their reasons as the member `reason`."""
    read = (
        reader.read_rows(lake.table(each), None, ["reason", "row"])
        for each in letters_of(lake, stage_tables(lake, table))
    )
    rows = [row for letters in read for row in letters.to_pylist()]
    return [{"reason": row["reason"], **json.loads(row["row"], parse_float=Decimal)} for row in rows]


Kind = Literal["as written", "cut", "killed", "on Spark"]

_KILLS: Final = ("before-log-commit", "after-log-commit", "inside-refresh", "before-log-entry", "after-refresh-commit")
"""Failpoints that an epoch passes: around the commit of events, and around that of each view."""
_PASSES: Final = 4
"""A kill is at one of the first passes of its failpoint: a pipeline of one source and three views has as many."""
_FIRST_FAILPOINT: Final = "before-log-commit:1"
"""Passed by every epoch that takes in an event: where a kill is put that the epoch did not come to."""
_PATIENCE_SECONDS: Final = 300.0
"""After which a child is taken to hang: it imports, opens the lake and takes in a few rows, which takes a second."""
_LAST_WORDS: Final = 300
"""Characters of a child's error that a message repeats: an error with its hint."""


@dataclass(frozen=True)
class Trial:
    """One way to run a test.

    Attributes:
        seed: of the random places; the same seed gives the same ones.
    """

    kind: Kind
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.kind}, seed {self.seed}" if self.kind in ("cut", "killed") else self.kind


@dataclass(frozen=True)
class TrialResult:
    """The result of a test in one trial: what was found wrong, in the first step that went wrong; nothing if it passed.

    Attributes:
        step: its number, from 1; 0 when none went wrong.
    """

    case: str
    trial: Trial
    seconds: float
    step: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.faults


@dataclass(frozen=True)
class Bench:
    """What all trials of a suite share.

    Attributes:
        template: a lake with the suite's definitions and no events; each trial begins with a copy.
        pipelines: of the suite's files, in order.
        settings: of a scratch lake, which is still the template.
        spark: the session of the trials on Spark.
    """

    template: Path
    pipelines: tuple[str, ...]
    settings: Settings
    spark: SparkSession | None = field(default=None, compare=False)


def scratch_settings(settings: Settings, lake: Path) -> Settings:
    """The settings of a lake for tests: the user's functions and memory, and nothing that is shared with anybody.

    Topics and schemas lie in the lake. The driver takes in what a test gives, however much, and an event may be of any
    time: records of tests are of 2024, which TIMESTAMP columns need not be.
    """
    ingest = IngestSettings(driver_rows=10**9, max_rows_per_epoch=10**9, max_seconds_ahead=0)
    apart = {"lake": lake, "kafka": KafkaSettings(), "registry": RegistrySettings(), "ingest": ingest}
    return settings.model_copy(update=apart)


def trials(cuts: int, seed: int, *, kills: bool, duckdb: bool, spark: bool) -> tuple[Trial, ...]:
    """The trials of each test."""
    found: list[Trial] = []
    if duckdb:
        found += [Trial("as written"), *(Trial("cut", seed + number) for number in range(cuts))]
        found += [Trial("killed", seed)] if kills else []
    return (*found, Trial("on Spark")) if spark else tuple(found)


def run_trial(bench: Bench, case: TypedCase, trial: Trial, folder: Path) -> TrialResult:
    """Run a test in a lake of its own.

    Args:
        folder: for the lake, which is removed again.

    Raises:
        StrandlineError: an event cannot be inserted, or the pipeline does not run. What views say of rows is a fault.
    """
    began = time.monotonic()
    copy_to_disk(bench.template, folder)
    settings = bench.settings.model_copy(
        update={"lake": folder, "engine": "spark" if trial.kind == "on Spark" else "duckdb"}
    )
    random = Random(f"{trial.seed} {case.name}")  # noqa: S311 - places to cut and to kill, no secret
    result = TrialResult(case.name, trial, 0)
    try:
        for number, step in enumerate(case.steps, 1):
            before = _versions_of(settings, step.expected)
            for events in _epochs(step, trial, random):
                _insert(settings, events)
                if trial.kind == "killed":
                    _kill(bench, settings, random, some=bool(events))
                _drain(bench, settings, trial)
            faults = check(settings, step.expected, before)
            if faults:
                result = replace(result, step=number, faults=tuple(faults))
                break
    finally:
        discard_folder(folder)
    return replace(result, seconds=time.monotonic() - began)


def _epochs(step: TypedStep, trial: Trial, random: Random) -> Iterator[Sequence[GivenEvent]]:
    """The events of a step, an epoch each; their order stays."""
    events = step.events
    if trial.kind != "cut":
        yield events
        return
    inner = range(1, len(events))
    places = sorted(random.sample(inner, random.randint(0, len(inner))))
    for begin, end in zip((0, *places), (*places, len(events)), strict=True):
        yield events[begin:end]


def _insert(settings: Settings, events: Sequence[GivenEvent]) -> None:
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    for event in events:
        source = catalog.get(event.source)
        assert isinstance(source, Source), "typed events are of sources"
        insert_rows(source, [event.row], settings, lake)


def _drain(bench: Bench, settings: Settings, trial: Trial) -> None:
    for pipeline in bench.pipelines:
        drain(settings, pipeline, bench.spark if trial.kind == "on Spark" else None, in_driver=True)


def _kill(bench: Bench, settings: Settings, random: Random, *, some: bool) -> None:
    """Run the pipelines in a process that is killed at a random place of its epoch; of a step without events, nothing.

    Where the epoch does not come to the place so often, the lake is put back, and the kill is at a place that every
    epoch comes to.

    Raises:
        RefreshFailed: the process ended otherwise.
    """
    if not some:
        return
    lake = Path(str(settings.lake))
    before = lake.with_suffix(".before")
    copy_to_disk(lake, before)
    for place in (f"{random.choice(_KILLS)}:{random.randint(1, _PASSES)}", _FIRST_FAILPOINT):
        done = _child(bench.pipelines, settings, place)
        if done.returncode == -signal.SIGKILL:
            discard_folder(before)
            return
        if done.returncode != 0:
            break
        remove_folder(lake)
        copy_to_disk(before, lake)
    said = done.stderr.strip()[-_LAST_WORDS:] or "it ended as if nothing were to be taken in"
    raise RefreshFailed(f"a process that was to be killed was not: {said}")


def _child(pipelines: Sequence[str], settings: Settings, failpoint: str) -> subprocess.CompletedProcess[str]:
    """A process that drains the pipelines. It reads the lake's own settings, and none of the user's."""
    config = Path(str(settings.lake)).with_suffix(".toml")
    config.touch()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    environment = {
        **ours,
        "STRANDLINE_CONFIG": str(config),
        "STRANDLINE_LAKE": str(settings.lake),
        "STRANDLINE_FUNCTIONS__MODULES": json.dumps(settings.functions.modules),
        "STRANDLINE_INGEST": settings.ingest.model_dump_json(),
        "STRANDLINE_FAILPOINT": failpoint,
    }
    command = [sys.executable, "-m", "strandline.jobs.testing.trials", *pipelines]
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RefreshFailed(f"a process that was to be killed did not end within {_PATIENCE_SECONDS:g} s") from error


# A run of suites: every test in every trial, one after the other.


@contextmanager
def prepared(settings: Settings, suite: Suite) -> Iterator[tuple[Bench, tuple[TypedCase, ...]]]:
    """A suite's definitions in a lake of their own, and its tests with the types of these definitions.

    The lake of the settings is neither read nor written.

    Raises:
        SqlError: a file or a test is refused; the message says where.
    """
    with TemporaryDirectory(prefix="strandline-test-") as folder:
        template = Path(folder) / "template"
        scratch = scratch_settings(settings, template)
        pipelines = tuple(apply(file, scratch).pipeline for file in suite.files)
        _own_foreign_sources(scratch)
        yield Bench(template, pipelines, scratch), typed(suite, Catalog(LakeLayout(template)))


def _own_foreign_sources(settings: Settings) -> None:
    """Read the rows of tables of others from topics of the lake, where tests put theirs.

    Raises:
        InvalidQuery: a table has no key, so no event could say which of its rows goes.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    for each in catalog.definitions():
        if not isinstance(each, Source) or origin_of(each.topic) is None:
            continue
        if each.kind == "table" and not each.key:
            raise InvalidQuery(
                sentence("a test cannot give rows of '{}': a table of others that has no KEY", Name(each.name)),
                hint="declare KEY, or test the views over a table that has one",
            )
        own = {name: text for name, text in each.options.items() if name in OWNERSHIP_OPTIONS}
        made = replace(
            each, topic=each.name, key_format="JSON", value_format="JSON", read_only=False, partitions=1, options=own
        )
        catalog.replace(made)
        open_log(settings, lake).ensure_topic(made.topic)


def run_suite(bench: Bench, cases: Sequence[TypedCase], wanted: Sequence[Trial]) -> Iterator[TrialResult]:
    """Run tests, each in every trial; the results as they come.

    Raises:
        StrandlineError: an event cannot be inserted, or a pipeline does not run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="strandline-trial-")))
        spark: SparkSession | None = None
        # Spark's trials come last: those that take no JVM tell first.
        for trial in wanted:
            if trial.kind == "on Spark" and spark is None:
                spark = _session(bench.settings, stack)
            for case in cases:
                yield run_trial(
                    Bench(bench.template, bench.pipelines, bench.settings, spark), case, trial, folder / "lake"
                )


def _session(settings: Settings, stack: ExitStack) -> SparkSession:
    from strandline.jobs.run.spark import spark_session

    # A handful of rows: each further partition of a shuffle is a task more, and no row less in the others.
    return stack.enter_context(spark_session(settings.spark.model_copy(update={"shuffle_partitions": 1})))


def main() -> int:
    """Drain the pipelines that the command line names, as a driver to be killed; 0 when they are drained, 2 after an
    error that is on standard error."""
    settings = load_settings(engine="duckdb")
    try:
        for pipeline in sys.argv[1:]:
            drain(settings, pipeline, in_driver=True)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
