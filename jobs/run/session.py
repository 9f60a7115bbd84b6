"""The Spark session of a run, started when it is first needed: a run that finds nothing new does without a JVM."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING

from jobs.run.orphans import noted_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.model.settings import SparkSettings
    from state_store.lock import WriterLock


class Session:
    """The session of a run; calling it starts it. Stop it by `with`, together with its JVM.

    Args:
        lock: beside which the JVM is noted.
        given: a session that is there already, and stays.
    """

    def __init__(self, settings: SparkSettings, lock: WriterLock, given: SparkSession | None = None) -> None:
        self._settings = settings
        self._lock = lock
        self._given = given
        self._found: SparkSession | None = None
        self._stack = ExitStack()
        self._starting = Lock()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def started(self) -> bool:
        """True when calling it costs nothing."""
        return self._found is not None or self._given is not None

    def __call__(self) -> SparkSession:
        """The session. Raises SettingsError: it does not start."""
        with self._starting:
            if self._found is None:
                self._found = self._start()
            return self._found

    def _start(self) -> SparkSession:
        from jobs.ingest import source
        from jobs.run.spark import spark_session

        spark = self._given or self._stack.enter_context(spark_session(self._settings))
        self._stack.enter_context(noted_jvm(spark, self._lock))
        source.register(spark)
        return spark
