"""What a view asks an object store: counted for the refresh that asks, whichever thread does."""

from __future__ import annotations

from threading import Thread

import pytest
from obstore.store import MemoryStore

from strandline.jobs.model.settings import Settings
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import ObjectMissing
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import Location, side_by_side
from strandline.state_store.storage_objects import ObjectStorage
from strandline.state_store.storage_verbs import REQUESTS, by_verb
from tests.support.lakes import s3_settings
from tests.support.s3_server import S3Server
from tests.support.scraped import value
from tests.unit.run.test_metrics import drained, shown

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW shops AS
    SELECT COUNT(*) AS shops FROM (SELECT shop FROM sales GROUP BY shop HAVING COUNT(*) > 1) AS s;
"""


@pytest.fixture
def storage() -> ObjectStorage:
    return ObjectStorage(MemoryStore(), "s3://bucket/lake")  # type: ignore[arg-type]


@pytest.fixture
def on_s3(s3_server: S3Server) -> Settings:
    return s3_settings(s3_server)


def test_a_unit_counts_its_own_requests_and_those_of_the_units_in_it(storage: ObjectStorage) -> None:
    with REQUESTS.of_unit() as whole:
        assert storage.create("a", b"1")
        with REQUESTS.of_unit() as part:
            assert storage.get("a") == b"1"
            with pytest.raises(ObjectMissing):
                storage.get("b")
        assert by_verb(part) == {"get": 2}, "an answer that there is nothing costs as much"
    assert storage.get("a") == b"1"
    assert by_verb(whole) == {"get": 2, "put": 1}


def test_what_a_unit_has_read_side_by_side_is_its_own_and_another_thread_s_is_not(storage: ObjectStorage) -> None:
    assert storage.create("a", b"1")
    with REQUESTS.of_unit() as mine:
        assert [*side_by_side(storage.get, ["a"] * 40, Location(storage))] == [b"1"] * 40
        other = Thread(target=storage.get, args=("a",))
        other.start()
        other.join()
    assert by_verb(mine) == {"get": 40}


def test_a_view_on_an_object_store_says_what_its_refreshes_asked_for(on_s3: Settings) -> None:
    settings = shown(on_s3)
    list(Interpreter(settings, "shop").run(SHOP + "INSERT INTO sales VALUES ('a', 2), ('b', 5), ('a', 1);"))
    before = REQUESTS.so_far()
    [found] = drained(settings)
    whole = by_verb(REQUESTS.since(before))
    beat = read_beat(LakeLayout(settings.lake), "shop")
    assert beat is not None
    asked = {each.name: each.requests for each in beat.tables}
    for view in ("by_shop", "shops"):
        assert asked[view]["put"] >= 2, "a data file and a commit"
        assert asked[view]["get"] >= 1
    assert asked["sales"] == {}, "the intake is no refresh"
    assert all(sum(each.get(verb, 0) for each in asked.values()) < whole[verb] for verb in ("put", "get"))
    of_shops = value(found, "strandline_refresh_requests_total", table="shops", verb="put")
    assert 2 <= of_shops < asked["shops"]["put"], "the view has an inner stage, which has a table of its own"


def test_a_view_on_a_disk_asks_nobody(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP + "INSERT INTO sales VALUES ('a', 2);"))
    assert {sum(each.requests.values()) for each in drain(settings, "shop", in_driver=True).tables} == {0}
