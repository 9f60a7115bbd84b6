"""The Spark session of a run, with the reason for every setting. Nothing else builds one.

    python -m strandline.jobs.run.spark     train a session and write the JVM's class archive, 190 MB (`make setup`)

A session is started when it is first needed: a run that finds nothing new does without a JVM.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.errors import JvmLost
from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run.jars import home
from strandline.jobs.run.orphans import noted_jvm
from strandline.state_store.errors import SettingsError
from strandline.state_store.files import discard_folder
from strandline.state_store.paths import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.orphans import HeldLock
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.storage import StorageOptions


_LOG4J = Path(__file__).with_name("log4j2.properties")
_DELTA_JARS = home("delta")

_KINDS_OF_MASTERS = ("local", "spark://", "yarn", "k8s://")
_MASTERS = "write local[*], local[4], spark://HOST:PORT, yarn or k8s://… into STRANDLINE_SPARK__MASTER"
_JAVA_VERSIONS = ("17", "21")
_STARTING_SECONDS = 2.0
"""A connection to a JVM breaks a moment before its process is seen to end."""
_JAVA_SECONDS = 30.0
"""A JVM says its version within a tenth of a second; a busy machine takes longer."""

_PAGES = {
    "spark.ui.enabled": "false",
    # Kept all the same are a thousand queries, each with its plan's text and metrics: most of what a heap grows by from
    # epoch to epoch (a view over a join: 106 MB after 16 epochs with these settings, 124 without).
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.ui.showConsoleProgress": "false",
}
"""Of Spark's own pages, which nobody opens."""


def class_archives() -> Path:
    """The folder of the JVM's class archive (`write_class_archive` writes it)."""
    return home("classes")


def _mapped_classes() -> str:
    """The JVM's options that map the class archive; nothing where there is none, or one that was cut short."""
    for archive in class_archives().glob("spark-*.jsa"):
        if archive.name == f"spark-{archive.stat().st_size}.jsa":
            # A JVM of another version ignores the archive; its log, which says so at every start, is off.
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
    return ""


def session_conf(settings: SparkSettings, jvm: str | None = None, jars: Sequence[Path] = ()) -> dict[str, str]:
    """Every option of the session, as data.

    Args:
        jvm: stands in for the options that map the class archive.
        jars: beside Delta's.
    """
    cores = os.cpu_count() or 2
    partitions = str(settings.shuffle_partitions or cores)
    # Executors of a cluster must find the driver: there Spark chooses the address, or SPARK_LOCAL_IP does.
    loopback = {name: "127.0.0.1" for name in ("spark.driver.bindAddress", "spark.driver.host")}
    options = f"-Duser.timezone=UTC -XX:+UseParallelGC -Dlog4j2.configurationFile={_LOG4J}"
    return {
        "spark.jars": ",".join(sorted(str(jar) for jar in (*_DELTA_JARS.glob("*.jar"), *jars))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": settings.driver_memory,
        # A zone other than UTC makes Delta verify every commit by a full reconstruction of the table's state.
        "spark.driver.extraJavaOptions": f"{options} {_mapped_classes() if jvm is None else jvm}".rstrip(),
        "spark.sql.session.timeZone": "UTC",
        # Few rows, few tasks: the cost of an epoch is the start of jobs, not data.
        "spark.sql.shuffle.partitions": partitions,
        "spark.databricks.delta.snapshotPartitions": "2",
        # Independent views refresh in parallel threads.
        "spark.scheduler.mode": "FAIR",
        # A retry after a lost answer recognises its own commit (off by default).
        "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
        # Parquet pages carry checksums that Spark writes and, unless told, does not check.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # The default, INT96, has no statistics, and no dates after 2262 when read as nanoseconds.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # An epoch reads the files that commits added: below this number the driver lists them itself, without a job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Workers are forked from a process that has imported the engine.
        "spark.python.daemon.module": "strandline.jobs.run.worker_daemon",
        # A worker must say who it is within that time of its fork: a machine that stands still for a while takes more
        # than the 15 s of the default.
        "spark.python.authenticate.socketTimeout": "120s",
        **_PAGES,
        **(loopback if _is_local(settings) else {}),
        # The warehouse is never used: tables are reached by path. It must not land in the working directory.
        "spark.sql.warehouse.dir": str(Path(os.environ.get("TMPDIR", "/tmp")) / "strandline-warehouse"),  # noqa: S108
        "spark.sql.streaming.numRecentProgressUpdates": "10",
    }


@contextmanager
def spark_session(
    settings: SparkSettings, name: str = "strandline", jvm: str | None = None, jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session that is stopped at the end, together with its JVM.

    Args:
        name: by which Spark's pages call it.
        jvm: options of the JVM in place of those that map the class archive.
        jars: beside Delta's.

    Raises:
        SettingsError: the jars of Delta are missing, or the JVM does not start.
        JvmLost: the JVM was ended while Spark started in it.
    """
    if not any(_DELTA_JARS.glob("delta-spark*.jar")):
        raise SettingsError("the jars of Delta are missing", where=str(_DELTA_JARS), hint="type: strandline setup")
    # Workers must run the interpreter that runs the driver: another one lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _is_local(settings):
        # Without it Spark looks up the host's name, and warns about the result.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    from pyspark.sql import SparkSession

    if not settings.master.startswith(_KINDS_OF_MASTERS):
        raise SettingsError(f"'{settings.master}' is no master of Spark", hint=_MASTERS)
    builder = SparkSession.builder.master(settings.master).appName(name)
    for key, value in session_conf(settings, jvm, jars).items():
        builder = builder.config(key, value)
    session = _without_handler(builder.getOrCreate, settings.master)
    try:
        yield session
    finally:
        _stop(session)


def _without_handler(start: Callable[[], SparkSession], master: str) -> SparkSession:
    """Start a session and keep the process's own handler of SIGINT: Spark's raises in the middle of a call to the JVM,
    after which that connection answers the next call with the last one's answer.

    Raises:
        SettingsError: the JVM or Spark in it does not start.
        JvmLost: the JVM was there, and was ended while Spark started in it.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    before = signal.getsignal(signal.SIGINT)
    try:
        session = start()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise _not_started(master) from error
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage() or error.java_exception.getClass().getName()).partition("\n")[0]
        raise SettingsError(f"Spark does not start with the master '{master}': {said}", hint=_MASTERS) from error
    except Exception as error:
        how = ended(_STARTING_SECONDS)
        if how is None:
            raise
        _forget()
        raise JvmLost.of(how) from error
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)
    return session


def _not_started(master: str) -> SettingsError:
    """The error for a JVM that ended before Spark in it was there; what it said stands on standard error."""
    java = _java()
    version = _version_of(java)
    if version not in _JAVA_VERSIONS:
        found = "there is none that runs" if version is None else f"this one is {version}"
        hint = "install one of them, and set JAVA_HOME to it (Debian: apt install openjdk-17-jre-headless)"
        return SettingsError(f"Spark needs Java {' or '.join(_JAVA_VERSIONS)}, and {found}", where=java, hint=hint)
    return SettingsError(
        f"Spark's JVM ended while it started, with the master '{master}'",
        where=java,
        hint="what it said stands above; STRANDLINE_SPARK__MASTER or STRANDLINE_SPARK__DRIVER_MEMORY may be wrong; or "
        "somebody ended it, as the kernel does when memory is short (dmesg): then run again",
    )


def _version_of(java: str) -> str | None:
    """The version of the language that a Java is of, as it says itself; None: it does not run."""
    try:
        asked = [java, "-XshowSettings:properties", "-version"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    named = (line.partition("=") for line in done.stderr.splitlines())
    said = next((value.strip() for name, _, value in named if name.strip() == "java.specification.version"), None)
    return said if done.returncode == 0 else None


def ended(patience_seconds: float = 0.0) -> str | None:
    """How the JVM of this process ended, in words; None: it goes on, or there was none.

    Args:
        patience_seconds: a connection breaks a moment before the process is seen to end.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - the only way to the JVM's process
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None  # another process started it
    deadline = time.monotonic() + patience_seconds
    while (code := process.poll()) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _stop(session: SparkSession) -> None:
    """Stop a session with its JVM; of one whose JVM has ended, what is left in this process."""
    if ended() is None:
        session.stop()
        return
    with suppress(Exception):  # each step of it asks the JVM
        session.stop()
    _forget()


def _forget() -> None:
    """Forget a JVM that has ended, or the next session of this process would ask it."""
    from pyspark import SparkContext

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def _java() -> str:
    """The Java that Spark takes."""
    home_of = os.environ.get("JAVA_HOME")
    return str(Path(home_of) / "bin" / "java") if home_of else shutil.which("java") or "no java on PATH"


def _is_local(settings: SparkSettings) -> bool:
    """True if driver and executors are one process."""
    return settings.master.startswith("local")


# Spark's way to a lake on S3: Hadoop's S3A, with the settings by which the lake itself was opened.
#
# Its jars are fetched for those who use it (`strandline setup --s3`, 13 MB). The keys are set in the running session,
# not in its options: those stand on the JVM's command line, where everybody on the machine reads them.

_S3_JARS: Final = home("s3")
# The URLs of a lake are s3://…, as delta-rs and all others write them; s3a:// is Hadoop's own word.
_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def s3_jars(lake: LakeLayout) -> list[Path]:
    """The jars that a session needs to reach the lake, beside Delta's; none for a lake on a disk.

    Raises:
        SettingsError: they are not there, or no session reaches this kind of object store.
    """
    if not isinstance(lake.root, Location):
        return []
    if not str(lake.root).startswith("s3://"):
        raise SettingsError(
            "Spark reaches lakes on a disk and on S3 only",
            where=str(lake.root),
            hint="with no events to take in and STRANDLINE_ENGINE=duckdb, a run does without Spark",
        )
    found = sorted(_S3_JARS.glob("*.jar"))
    if not any(jar.name.startswith("hadoop-aws") for jar in found):
        raise SettingsError(
            "the jars by which Spark reaches S3 are missing", where=str(_S3_JARS), hint="type: strandline setup --s3"
        )
    return found


def connect(spark: SparkSession, lake: LakeLayout, options: StorageOptions) -> None:
    """Tell a session how to reach the lake; nothing for one on a disk.

    Args:
        options: by which the lake was opened.
    """
    if isinstance(lake.root, Location):
        configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - the only way to it
        for key, value in hadoop_options(options.with_environment()).items():
            configuration.set(key, value)


def hadoop_options(options: StorageOptions) -> dict[str, str]:
    """Hadoop's options for S3A. What is not said is left to the SDK, such as the role of the machine."""
    said = {
        "fs.s3.impl": _FILE_SYSTEM,
        "fs.s3a.endpoint": options.endpoint,
        "fs.s3a.endpoint.region": options.region,
        "fs.s3a.path.style.access": str(not options.virtual_hosted_style).lower(),
        "fs.s3a.access.key": options.access_key_id,
        "fs.s3a.secret.key": options.secret_access_key,
        "fs.s3a.session.token": options.session_token,
        # The default since Hadoop 3.5 is a library of its own, for files of gigabytes.
        "fs.s3a.input.stream.type": "classic",
    }
    return {key: value for key, value in said.items() if value is not None}


_SEEN_WITHIN_SECONDS: Final = 1.0
"""After an error of a run, which a JVM that was killed causes a moment before it is seen to have ended."""


class Session:
    """The session of a run; calling it starts it. Stop it by `with`, together with its JVM.

    Args:
        lake: that it is to reach.
        lock: beside which the JVM is noted.
        given: a session that is there already, and stays.
    """

    def __init__(self, settings: Settings, lake: LakeLayout, lock: HeldLock, given: SparkSession | None = None) -> None:
        self._settings = settings
        self._lake = lake
        self._lock = lock
        self._given = given
        self._found: SparkSession | None = None
        self._stack = ExitStack()
        self._starting = Lock()
        self._over = False
        self._asked = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._stack.close()

    @property
    def started(self) -> bool:
        """True when calling it costs nothing."""
        return self._found is not None or self._given is not None

    def __call__(self) -> SparkSession:
        """The session. Raises SettingsError: it does not start, or would not reach the lake; JvmLost."""
        with self._starting:
            if self._found is None:
                self._asked = True
                self._found = self._start()
                if self._over:  # the run has not waited for it
                    self._stack.close()
            return self._found

    def ended(self) -> str | None:
        """How its JVM ended while it was at work, in words; None: it goes on, or none was started."""
        return ended(_SEEN_WITHIN_SECONDS) if self._asked and not self._over else None

    def checkpoint(self, pipeline: str) -> Path:
        """An empty folder for the checkpoint of the pipeline's query; both end with the run.

        It need not be where the lake is: an object store would only take its time for each of its files.
        """
        checkpoint = self._lake.checkpoint(pipeline)
        if isinstance(checkpoint, Path):
            discard_folder(checkpoint)
            return checkpoint
        made = TemporaryDirectory(prefix="strandline-", ignore_cleanup_errors=True)
        return Path(self._stack.enter_context(made))

    def _start(self) -> SparkSession:
        from strandline.jobs.ingest import source

        found = s3_jars(self._lake)
        spark = self._given or self._stack.enter_context(spark_session(self._settings.spark, jars=found))
        connect(spark, self._lake, self._settings.storage.options())
        self._stack.enter_context(noted_jvm(spark, self._lock))
        source.register(spark)
        return spark


# The JVM's class archive: what a session's start loads, parsed and checked once instead of at every start.
#
# A Spark session and its first queries load some 20,000 classes, which is a third of the processor's time they cost
# (docs/design/0011-start.md). The archive is the JVM's own (JEP 350, dynamic class data sharing): it is mapped into
# memory, and a JVM of another version or with other jars ignores it, so that a stale one costs time and nothing else.

_ARCHIVE_SECONDS: Final = 300
"""How long the JVM may take to write the archive when it ends: 15 s on a quiet machine, 60 s on a busy one."""


def write_class_archive() -> Path | None:
    """Write the archive of a session that did what every run does; None from a JVM that has no archives.

    The session itself runs without one: an archive can't be made on top of another. The name carries the size, so
    that a file that was cut short is never mapped, which would end the JVM.
    """
    folder = class_archives()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    unfinished = folder / "unfinished"
    # What the JVM says of the classes that it leaves out, a thousand lines, helps nobody.
    options = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable -Xlog:all=error:stderr"
    with spark_session(SparkSettings(), "strandline-setup", options) as session:
        gateway = session.sparkContext._gateway  # noqa: SLF001 — Spark has no other name for its JVM
        assert gateway is not None
        jvm = gateway.proc
        with tempfile.TemporaryDirectory() as scratch:
            _train(session, Path(scratch))
    # Without its standard input the JVM ends, and writes the archive as its last act.
    jvm.stdin.close()
    jvm.wait(_ARCHIVE_SECONDS)
    if not unfinished.exists():
        return None
    return unfinished.rename(folder / f"spark-{unfinished.stat().st_size}.jsa")


def _train(session: SparkSession, scratch: Path) -> None:
    """Load the classes of both formats, of joins, aggregates, windows and of Python's workers."""
    rows = session.range(1000).selectExpr("id", "id % 7 AS key", "CAST(id AS STRING) AS text", "id / 3 AS number")
    rows.write.parquet(str(scratch / "parquet"))
    session.read.parquet(str(scratch / "parquet")).createOrReplaceTempView("events")
    session.sql(
        "SELECT key, COUNT(*) AS n, SUM(number) AS total, MAX(text) AS top FROM events GROUP BY key"
    ).write.format("delta").save(str(scratch / "delta"))
    session.read.format("delta").load(str(scratch / "delta")).createOrReplaceTempView("totals")
    session.sql(
        "SELECT e.key, ROW_NUMBER() OVER (PARTITION BY e.key ORDER BY e.id) AS place, t.n FROM events AS e "
        "LEFT JOIN totals AS t ON e.key = t.key WHERE e.id IN (SELECT MAX(id) FROM events GROUP BY key)"
    ).collect()
    session.range(4).mapInArrow(lambda batches: batches, "id BIGINT").collect()


if __name__ == "__main__":
    written = write_class_archive()
    sys.stdout.write(f"{written or 'this JVM keeps no class archives'}\n")
