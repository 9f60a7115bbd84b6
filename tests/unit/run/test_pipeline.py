"""A run works with the definitions that stand while it holds the writer's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import PipelineMissing
from strandline.jobs.model.settings import Settings
from strandline.jobs.run import orphans, pipeline
from strandline.jobs.run.orphans import HeldLock
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.stream import PipelineStream
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import ObjectMissing, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import on_disk

STREAM = "CREATE STREAM s (id INT) WITH (KAFKA_TOPIC = 't');"


@pytest.fixture
def before_the_lock(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Callable[[str], None]:
    """Lets somebody execute a text after the run has begun, and before it takes the lock."""

    def arrange(text: str) -> None:
        @contextmanager
        def late(lake: LakeLayout, name: str, owner: str, lease_seconds: float) -> Iterator[HeldLock]:
            list(Interpreter(settings, "p").run(text))
            with orphans.sole_writer(lake, name, owner, lease_seconds) as lock:
                yield lock

        monkeypatch.setattr(pipeline, "sole_writer", late)

    return arrange


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[PipelineStream]:
    """The streams that are drained; none starts Spark."""
    found: list[PipelineStream] = []
    monkeypatch.setattr(PipelineStream, "drain", lambda stream, _stop, in_driver: found.append(stream))
    return found


def test_a_definition_that_is_replaced_before_the_lock_is_taken_is_the_new_one(
    settings: Settings, before_the_lock: Callable[[str], None], seen: list[PipelineStream]
) -> None:
    list(Interpreter(settings, "p").run(STREAM))
    before_the_lock(STREAM.replace("CREATE", "CREATE OR REPLACE").replace("id INT", "id INT, n INT"))
    drain(settings, "p")
    (definition,) = seen[0].definitions
    assert isinstance(definition, Source)
    assert [column.name for column in definition.columns] == ["id", "n"]


def test_a_pipeline_that_is_dropped_before_the_lock_is_taken_does_not_run(
    settings: Settings, before_the_lock: Callable[[str], None], seen: list[PipelineStream]
) -> None:
    list(Interpreter(settings, "p").run(STREAM))
    before_the_lock("DROP STREAM s;")
    with pytest.raises(PipelineMissing):
        drain(settings, "p")
    assert not seen


def test_a_pipeline_that_is_not_there_gets_no_lock(settings: Settings, lake: LakeLayout) -> None:
    with pytest.raises(ObjectMissing, match="there is no lake yet"):  # a wrong folder, before a wrong name
        drain(settings, "p")
    list(Interpreter(settings, "other").run(STREAM))
    with pytest.raises(PipelineMissing):
        drain(settings, "p")
    assert not lake.lock("p").exists()


def test_a_definition_is_not_replaced_while_its_pipeline_runs(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings, "p")
    list(session.run(STREAM))
    with writer_lock(on_disk(lake.lock("p")), "run/1"), pytest.raises(WriterBusy):
        list(session.run(STREAM.replace("CREATE", "CREATE OR REPLACE").replace("id INT", "id BIGINT")))


def test_what_was_dropped_and_created_anew_elsewhere_is_dropped_under_the_lock_of_its_new_pipeline(
    settings: Settings, lake: LakeLayout
) -> None:
    """The session that drops has read the catalog long ago."""
    old = Interpreter(settings, "p")
    list(old.run(STREAM))
    list(Interpreter(settings, "q").run("DROP STREAM s;" + STREAM))
    with writer_lock(on_disk(lake.lock("q")), "run/1"), pytest.raises(WriterBusy, match="'q'"):
        list(old.run("DROP STREAM s"))
