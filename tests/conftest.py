"""Fixtures that every room of the tests shares: one Spark session for the whole run, and a fresh lake for each test."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings as hypothesis_settings

from strandline.jobs.model.settings import Settings, SparkSettings, load_settings
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.examples import ANEW, SLOWNESS, examples
from tests.support.leaks import Running, Settled
from tests.support.shares import left_out, takes_all, turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.kafka.broker import KafkaBroker
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from tests.support.s3_server import S3Server

# A busy machine makes any single example slow: time limits belong to the whole run (pytest-timeout), not to examples.
hypothesis_settings.register_profile(
    "strandline",
    max_examples=examples(15),
    deadline=None,
    print_blob=True,
    derandomize=not ANEW,
    suppress_health_check=SLOWNESS,
)
hypothesis_settings.load_profile("strandline")

# Linux keeps it in memory. A run leaves some 300 MB there, which the next but two removes.
_IN_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 4 << 30
# The JVM's second compiler makes quick what runs for long. Nothing does here, and it took a fifth of the processor's
# time.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def pytest_configure() -> None:
    """Spark's JVMs, those of child processes too, use their first compiler alone, and the tests' folders are kept in
    memory where there is room: flushes to a disk take a tenth of the run.

    What flushes are for is tested without a disk (tests/support/power.py). And this process and its children hear
    Ctrl-C, also where a script's shell has started them in the background: it lets such processes ignore SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _FIRST_COMPILER)
    if _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _NEEDED_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_report_header() -> str:
    """Which share of the longest tests is run."""
    return f"longest tests: turn {turn()} (STRANDLINE_TURN); all of them: STRANDLINE_WHOLE=1, or by file"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out those of the longest tests whose turn it is not."""
    if takes_all(config.args):
        return
    left = left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


@pytest.fixture(autouse=True)
def _sets_nothing() -> Iterator[None]:
    """No test leaves a signal handler, a variable of the environment or a working folder to the next."""
    before = Settled.now()
    yield
    left = before.left()
    before.restore()
    assert left == []


@pytest.fixture(autouse=True, scope="module")
def _leaves_nothing_running() -> Iterator[None]:
    """No module leaves a thread or a child to the next. Looking at them takes a millisecond: not for each test."""
    before = Running.now()
    yield
    assert before.left() == []


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session: a JVM takes 10–15 s to start.

    Its plans run over a few rows, and compiling them would cost more than running them; what runs in processes of its
    own (tests/live) runs compiled plans.
    """
    from strandline.jobs.run.spark import spark_session

    with spark_session(SparkSettings(master="local[2]", shuffle_partitions=2), "strandline-tests") as session:
        for name, value in _INTERPRETED.items():
            session.conf.set(name, value)
            # What a refresh opens beside it begins with the context's settings.
            session.sparkContext._jsc.sc().conf().set(name, value)
        yield session


@pytest.fixture(scope="module")
def duckdb_engine() -> Iterator[DuckDBEngine]:
    """A DuckDB engine for the tests of a module: each opens connections of its own."""
    from strandline.state_store.duckdb.engine import DuckDBEngine

    with DuckDBEngine("500MB", 1) as made:
        yield made


@pytest.fixture
def lake(tmp_path: Path) -> LakeLayout:
    return LakeLayout(tmp_path / "lake")


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> LakePath:
    """A folder that is empty, on each kind of storage."""
    if request.param == "disk":
        return tmp_path
    from tests.support.lakes import s3_folder

    return s3_folder(request.getfixturevalue("s3_server"))


@pytest.fixture
def settings(lake: LakeLayout) -> Settings:
    return load_settings(lake=lake.root, spark=SparkSettings(master="local[2]", shuffle_partitions=2))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, shared: tests use topics of their own."""
    from infra.kafka.broker import KafkaBroker

    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 on this machine, shared: tests use prefixes of their own."""
    from tests.support.s3_server import S3Server

    server = S3Server()
    try:
        yield server
    finally:
        server.stop()
