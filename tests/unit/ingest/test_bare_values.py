"""Values of one column that are no object: they come in, are inserted, and are published as such."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.errors import OptionRefused
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.from_topic import rebuild_from_topic
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import rows
from tests.support.invariants import assert_correct

DEFINITIONS = """
CREATE TABLE prices (shop VARCHAR PRIMARY KEY, item INT PRIMARY KEY, price DOUBLE)
    WITH (KEY_FORMAT = 'DELIMITED', KEY_DELIMITER = '|', WRAP_SINGLE_VALUE = 'false');
CREATE MATERIALIZED VIEW dearest WITH (KAFKA_TOPIC = 'dearest', WRAP_SINGLE_VALUE = 'false') AS
    SELECT shop, MAX(price) AS price FROM prices GROUP BY shop;
"""


def payloads(lake: LakeLayout, topic: str) -> list[tuple[Any, Any]]:
    log = LocalLog(lake)
    runs = log.read(topic, 0, 0, log.end_offsets(topic)[0])
    return [pair for run in runs for pair in zip(run.keys, run.values, strict=True)]


def test_bare_values_come_in_and_go_out(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings, "shop")
    list(session.run(DEFINITIONS))
    LocalLog(lake).produce("prices", [Record(b"a|1", b"2.5", 1_000), Record(b"b|1", b"null", 1_000)])
    list(session.run("INSERT INTO prices VALUES ('a', 2, 7), ('c', 1, NULL)"))
    assert [value for _, value in payloads(lake, "prices")] == [b"2.5", b"null", b"7.0", b"null"]
    drain(settings, "shop")
    assert_correct(lake, "shop")
    expected = [("a", 7.0), ("b", None), ("c", None)]
    assert sorted(rows(lake, "dearest")) == expected
    assert sorted(payloads(lake, "dearest")) == [(b'"a"', b"7.0"), (b'"b"', b"null"), (b'"c"', b"null")]
    table = lake.table("dearest")
    assert isinstance(table, Path)
    shutil.rmtree(table)
    rebuild_from_topic(settings, "dearest")
    assert sorted(rows(lake, "dearest")) == expected


def test_a_bare_value_gets_no_second_column(settings: Settings) -> None:
    session = Interpreter(settings, "shop")
    list(session.run(DEFINITIONS))
    with pytest.raises(OptionRefused, match="a value of one column, not 2: price, was"):
        list(session.run("ALTER TABLE prices ADD COLUMN was DOUBLE"))
