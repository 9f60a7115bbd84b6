"""Where a lake's topics are: remembered, so that a missing setting is an error and not another log."""

from __future__ import annotations

import pytest

from strandline.jobs.ingest.topics import open_log, remember, remembered
from strandline.jobs.model.errors import TopicsElsewhere
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.unit.session.statements import STREAM, run


@pytest.fixture
def on_kafka(lake: LakeLayout) -> Settings:
    return load_settings(lake=lake.root, kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))


def test_a_lake_of_kafka_refuses_to_work_without_the_setting(
    settings: Settings, on_kafka: Settings, lake: LakeLayout
) -> None:
    remember(on_kafka, lake)
    for work in (
        lambda: run(Interpreter(settings), STREAM + "INSERT INTO s (id) VALUES (1);"),
        lambda: status(settings),
        lambda: open_log(settings, lake),
    ):
        with pytest.raises(TopicsElsewhere) as refused:
            work()
        assert "STRANDLINE_KAFKA__BOOTSTRAP_SERVERS" in str(refused.value.hint)
    assert not lake.topic("t").exists()


def test_a_lake_with_topics_of_its_own_refuses_brokers(
    settings: Settings, on_kafka: Settings, lake: LakeLayout
) -> None:
    run(Interpreter(settings), STREAM)
    with pytest.raises(TopicsElsewhere, match="its own files"):
        open_log(on_kafka, lake)
    assert remembered(lake) == "local"


def test_topics_that_were_made_before_there_was_the_file_are_local(settings: Settings, lake: LakeLayout) -> None:
    run(Interpreter(settings), STREAM)
    on_disk(lake.topics_kind).unlink()
    assert remembered(lake) == "local"


def test_the_first_topic_decides(settings: Settings, on_kafka: Settings, lake: LakeLayout) -> None:
    remember(settings, lake)
    with pytest.raises(TopicsElsewhere):
        remember(on_kafka, lake)


def test_a_damaged_file_is_an_error(settings: Settings, lake: LakeLayout) -> None:
    remember(settings, lake)
    on_disk(lake.topics_kind).write_bytes(lake.topics_kind.read_bytes().replace(b"local", b"kafka"))
    with pytest.raises(CorruptState, match="where the lake's topics are"):
        open_log(settings, lake)
