"""A run of suites: every test in every trial, one after the other."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.session.apply import apply
from strandline.jobs.testing.trials import Bench, TrialResult, run_trial, scratch_settings
from strandline.jobs.testing.typed import typed
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.testing.suite import Suite
    from strandline.jobs.testing.trials import Trial
    from strandline.jobs.testing.typed import TypedCase


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
        yield Bench(template, pipelines, scratch), typed(suite, Catalog(Lake(template)))


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
