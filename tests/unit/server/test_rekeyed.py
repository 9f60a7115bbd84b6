"""A view that is replaced by one whose rows another key tells apart: whoever follows it is told, or goes on rightly."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.model.settings import load_settings
from strandline.jobs.publish.encoder import decoded_rows, live_records
from strandline.jobs.publish.publisher import open_publisher, open_topic, registry_of
from strandline.jobs.publish.topic import topic_as_source
from strandline.jobs.serve.errors import ChangesGone
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import Tombstone
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.server.state.events import Form, Place
from strandline.jobs.server.state.feed import Backlog
from strandline.jobs.server.state.hub import Hub, SubscriptionRequest
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import InputReplaced
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.serve.test_past import asked
from tests.unit.server.test_changes import events, select, subscribe, taken

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE MATERIALIZED VIEW best WITH (KAFKA_TOPIC = 'best') AS
        SELECT town, n, COUNT(*) AS visits FROM visits GROUP BY town, n;
"""
BY_TOWN = """CREATE OR REPLACE MATERIALIZED VIEW best WITH (KAFKA_TOPIC = 'best') AS
    SELECT town, MAX(n) AS n, COUNT(*) AS visits FROM visits GROUP BY town;"""
BY_BOTH = DEFINITIONS.partition(";")[2].replace("CREATE", "CREATE OR REPLACE")
CHANGES = "SELECT town, n, visits FROM best EMIT CHANGES;"


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    """Version 1 has two rows of Rome and one of Oslo."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    more(served, ("Rome", 1), ("Rome", 2), ("Oslo", 1))
    return served


def more(served: ServedLake, *visits: tuple[str, int]) -> None:
    """Further visits, taken in."""
    served.append("visits", [{"id": 1, "town": town, "n": n} for town, n in visits])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


def replace(served: ServedLake, text: str = BY_TOWN) -> int:
    """The other definition, swapped in; the version before."""
    head = log.newest_version(served.lake.table("best"))
    assert head is not None
    assert list(Interpreter(served.settings).run(text))
    assert log.newest_version(served.lake.table("best")) == head + 1
    return head


def test_changes_of_rows_of_two_keys_are_not_told(served: ServedLake) -> None:
    former = subscription(select(CHANGES), Catalog(served.lake), served.lake)
    before = replace(served)
    more(served, ("Oslo", 3))
    made = subscription(select(CHANGES), Catalog(served.lake), served.lake)
    assert (former.relation.key, made.relation.key) == (("town", "n"), ("town",))
    for each in (former, made):
        for after, upto in ((before, before + 1), (before, before + 2), (before - 1, before)):
            with pytest.raises(ChangesGone, match="another key tells its rows apart") as refused:
                each.changes(after, upto)
            assert refused.value.hint == "subscribe again: a snapshot comes first"
    for each, version in ((former, before + 1), (made, before)):
        with pytest.raises(ChangesGone):
            each.snapshot(version)
    with QueryEngine(Library((), ())) as duck:
        assert list(made.visible(duck, made.changes(before + 1, before + 2))) == [("Oslo", 3, 2)]


def test_a_key_that_comes_back_is_another_one(served: ServedLake) -> None:
    first = replace(served)
    replace(served, BY_BOTH)
    made = subscription(select(CHANGES), Catalog(served.lake), served.lake)
    with pytest.raises(ChangesGone):
        made.changes(first, first + 2)
    more(served, ("Rome", 5))
    assert made.changes(first + 2, first + 3).num_rows == 1


def test_the_same_key_goes_on(served: ServedLake) -> None:
    before = replace(served, BY_BOTH.replace("FROM visits", "FROM visits WHERE n < 2"))
    made = subscription(select(CHANGES), Catalog(served.lake), served.lake)
    with QueryEngine(Library((), ())) as duck:
        assert list(made.visible(duck, made.changes(before, before + 1))) == [Tombstone(("Rome", 2, None))]


@pytest.mark.parametrize("form", ["upserts", "columns"])
def test_a_subscriber_of_the_former_key_is_told_to_begin_anew(served: ServedLake, form: Form) -> None:
    async def run() -> None:
        hub = Hub(served.lake, 10, Backlog(100))
        coming = asyncio.ensure_future(
            taken(subscribe(served, hub, SubscriptionRequest(select(CHANGES), form, snapshot=False)), "error")
        )
        while hub.subscribers < 1:
            await asyncio.sleep(0)
        before = replace(served)
        hub.told("best")
        ended = (await asyncio.wait_for(coming, PATIENCE_SECONDS)).rpartition("data: ")[2]
        assert json.loads(ended)["code"] == "serve.restart_from_snapshot"
        for place in (Place(before), Place(0), Place(before, 1, snapshot=True)):
            with pytest.raises(ChangesGone, match="another key"):
                subscribe(served, hub, SubscriptionRequest(select(CHANGES), form, place))
        hub.close()

    asyncio.run(run())


def test_weights_go_on(served: ServedLake) -> None:
    async def run() -> None:
        hub = Hub(served.lake, 10, Backlog(100))
        newest = replace(served) + 1
        held: Counter[tuple[object, ...]] = Counter()
        wish = SubscriptionRequest(select(CHANGES), "weights", Place(0), up_to=newest)
        for kind, _, data in events(await taken(subscribe(served, hub, wish), times=9)):
            if kind == "change":
                assert isinstance(data["row"], dict)
                assert isinstance(data["weight"], int)
                held[tuple(data["row"].values())] += data["weight"]
        assert +held == {("Rome", 2, 2): 1, ("Oslo", 1, 1): 1}
        hub.close()

    asyncio.run(run())


def test_a_topic_has_the_rows_by_the_key_that_they_have_now(served: ServedLake) -> None:
    with closing(open_publisher(served.settings, "best")) as publisher:
        publisher.catch_up()
        replace(served)
        with pytest.raises(InputReplaced, match="or its key, are others"):
            publisher.catch_up()
    with closing(open_publisher(served.settings, "best")) as publisher:
        assert publisher.catch_up().way == "difference"
        more(served, ("Oslo", 3))
        assert publisher.catch_up().way == "changes"
    source = topic_as_source(Catalog(served.lake).get("best"))  # type: ignore[arg-type]
    topic = open_topic(source, served.settings, served.lake)
    topic.close()
    live = live_records(topic.log, source.topic, "best", lambda value: value)
    rows = decoded_rows(live, source, registry_of(served.settings, served.lake)).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [("Oslo", 3, 2), ("Rome", 2, 2)]


def test_changes_in_words_say_of_no_row_that_it_took_the_place_of_another(served: ServedLake) -> None:
    before = replace(served)
    words = "SELECT town, n, _change_type FROM table_changes('best', {}, {}) ORDER BY 1, 2, 3"
    assert [tuple(row.values()) for row in asked(served, words.format(before + 1, before + 1))] == [
        ("Rome", 1, "delete"),
        ("Rome", 2, "delete"),
        ("Rome", 2, "insert"),
    ]
    more(served, ("Oslo", 3))
    assert {row["_change_type"] for row in asked(served, words.format(before + 2, before + 2))} == {
        "update_preimage",
        "update_postimage",
    }
    assert len(asked(served, f"SELECT town FROM best VERSION AS OF {before} WHERE town = 'Rome'")) == 2


def test_the_key_stays_noted(served: ServedLake) -> None:
    before = replace(served)
    more(served, ("Oslo", 3))
    path = served.lake.table("best")
    found = [reader.record_at(path, version).rekeyed for version in (before, before + 1, before + 2)]
    assert found[0] is None
    assert found[1] == found[2]
    assert found[1] is not None
    assert found[1].key == ("town",)
