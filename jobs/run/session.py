"""The Spark session of a run, started when it is first needed: a run that finds nothing new does without a JVM."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.run.orphans import noted_jvm
from strandline.state_store.files import discard_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.orphans import HeldLock
    from strandline.state_store.layout import Lake


_SEEN_WITHIN_SECONDS: Final = 1.0
"""After an error of a run, which a JVM that was killed causes a moment before it is seen to have ended."""


class Session:
    """The session of a run; calling it starts it. Stop it by `with`, together with its JVM.

    Args:
        lake: that it is to reach.
        lock: beside which the JVM is noted.
        given: a session that is there already, and stays.
    """

    def __init__(self, settings: Settings, lake: Lake, lock: HeldLock, given: SparkSession | None = None) -> None:
        self._settings = settings
        self._lake = lake
        self._lock = lock
        self._given = given
        self._found: SparkSession | None = None
        self._stack = ExitStack()
        self._starting = Lock()
        self._over = False

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
        """The session. Raises SettingsError: it does not start, or would not reach the lake."""
        with self._starting:
            if self._found is None:
                self._found = self._start()
                if self._over:  # the run has not waited for it
                    self._stack.close()
            return self._found

    def ended(self) -> str | None:
        """How its JVM ended while it was at work, in words; None: it goes on, or none was started."""
        from strandline.jobs.run.spark import ended

        return ended(self._found, _SEEN_WITHIN_SECONDS) if self._found is not None and not self._over else None

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
        from strandline.jobs.run import s3a
        from strandline.jobs.run.spark import spark_session

        jars = s3a.jars(self._lake)
        spark = self._given or self._stack.enter_context(spark_session(self._settings.spark, jars=jars))
        s3a.connect(spark, self._lake, self._settings.storage.options())
        self._stack.enter_context(noted_jvm(spark, self._lock))
        source.register(spark)
        return spark
