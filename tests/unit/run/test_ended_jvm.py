"""A JVM that is ended while Spark starts in it, or before the run has its session, is no fault of Strandline."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from strandline.jobs.model.errors import JvmLost
from strandline.jobs.model.settings import Settings
from strandline.jobs.run import spark as sparks
from strandline.jobs.run.pipeline import _lost_jvm
from strandline.jobs.run.spark import Session
from strandline.state_store.errors import StorageUnavailable
from strandline.state_store.layout import LakeLayout


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for a JVM whose gateway this process has."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        monkeypatch.setattr(SparkContext, "_jvm", object())
        try:
            yield process
        finally:
            process.kill()


def test_one_that_is_ended_while_spark_starts_is_lost(jvm: subprocess.Popen[bytes]) -> None:
    def start() -> NoReturn:
        jvm.kill()
        raise Py4JNetworkError("Error while sending or receiving")

    with pytest.raises(JvmLost, match="Spark's JVM was ended by SIGKILL"):
        sparks._without_handler(start, "local[2]")
    assert (SparkContext._gateway, SparkContext._jvm) == (None, None), "the next session starts a JVM of its own"


def test_an_error_of_one_that_goes_on_stays_what_it_is(
    jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> NoReturn:
        raise Py4JNetworkError("Error while sending or receiving")

    monkeypatch.setattr(sparks, "_STARTING_SECONDS", 0.05)
    with pytest.raises(Py4JNetworkError):
        sparks._without_handler(start, "local[2]")
    assert jvm.poll() is None
    assert SparkContext._gateway is not None


def test_one_that_is_ended_before_the_run_has_its_session_is_lost(
    jvm: subprocess.Popen[bytes], settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection is no store that does not answer."""

    def start(_: Session) -> NoReturn:
        jvm.send_signal(signal.SIGKILL)
        raise StorageUnavailable("another process does not answer: Connection refused")

    monkeypatch.setattr(Session, "_start", start)
    session = Session(settings, lake, SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(JvmLost, match="SIGKILL"), _lost_jvm(session):
        session()
    fresh = Session(settings, lake, SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailable), _lost_jvm(fresh):
        raise StorageUnavailable("a run that asked for none has lost none")
