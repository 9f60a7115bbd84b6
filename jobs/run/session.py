"""The Spark session of a run, started when it is first needed: a run that finds nothing new does without a JVM."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.run.jars import home
from strandline.jobs.run.orphans import noted_jvm
from strandline.state_store.errors import SettingsError
from strandline.state_store.files import discard_folder
from strandline.state_store.paths import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.orphans import HeldLock
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.storage.open import StorageOptions


# Spark's way to a lake on S3: Hadoop's S3A, with the settings by which the lake itself was opened.
#
# Its jars are fetched for those who use it (`strandline setup --s3`, 13 MB). The keys are set in the running session,
# not in its options: those stand on the JVM's command line, where everybody on the machine reads them.

_JARS: Final = home("s3")
# The URLs of a lake are s3://…, as delta-rs and all others write them; s3a:// is Hadoop's own word.
_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def jars(lake: LakeLayout) -> list[Path]:
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
    found = sorted(_JARS.glob("*.jar"))
    if not any(jar.name.startswith("hadoop-aws") for jar in found):
        raise SettingsError(
            "the jars by which Spark reaches S3 are missing", where=str(_JARS), hint="type: strandline setup --s3"
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
        from strandline.jobs.run.spark import ended

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
        from strandline.jobs.run.spark import spark_session

        found = jars(self._lake)
        spark = self._given or self._stack.enter_context(spark_session(self._settings.spark, jars=found))
        connect(spark, self._lake, self._settings.storage.options())
        self._stack.enter_context(noted_jvm(spark, self._lock))
        source.register(spark)
        return spark
