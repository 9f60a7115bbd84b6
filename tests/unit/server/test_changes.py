"""Subscriptions over HTTP: snapshot, then changes, resumed at any event, bounded, and read once for many."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.serve import watch as watches
from strandline.jobs.serve.errors import ChangesGone, Unauthenticated
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import Tombstone
from strandline.jobs.serve.subscription import Subscription, subscription
from strandline.jobs.serve.watch import CommitWatch
from strandline.jobs.server.state import feed as feeds
from strandline.jobs.server.state import hub as hubs
from strandline.jobs.server.state.events import Place, PushedEvent
from strandline.jobs.server.state.feed import Backlog, Delivered, Member
from strandline.jobs.server.state.hub import Hub, SubscriptionRequest
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.delta import log, reader
from strandline.state_store.paths import LakePath
from tests.support.on_disk import on_disk
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS, wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
"""


def events(text: str) -> list[tuple[str, str, dict[str, object]]]:
    """(kind, id, data) of each event; of progress the version, for the rest of it is another one each time."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            data = json.loads(fields["data"])
            shown = {"version": data["version"]} if fields["event"] == "progress" else data
            found.append((fields["event"], fields["id"], shown))
    return found


def row_of(data: dict[str, object]) -> dict[str, object]:
    row = data["row"]
    assert isinstance(row, dict)
    return row


@pytest.fixture
def filled(tmp_path: Path) -> ServedLake:
    """Three versions of `by_town` after the one that made it."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    with served.duckdb_engine() as duckdb_engine:
        for number, towns in enumerate((("Rome", "Oslo"), ("Rome",), ("Lima", "Oslo"))):
            served.append("visits", [{"id": number, "town": town, "n": 1} for town in towns])
            served.refresh(duckdb_engine)
    return served


def select(text: str = "SELECT * FROM by_town EMIT CHANGES;") -> Select:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement


def closable(sent: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same events, as what can be closed before its end."""
    assert isinstance(sent, AsyncGenerator)
    return sent


def subscribe(served: ServedLake, hub: Hub, wish: SubscriptionRequest) -> AsyncGenerator[bytes, None]:
    return closable(hub.subscribe(wish, Catalog(served.lake), Library([], ())))


async def taken(source: AsyncGenerator[bytes, None], until: str = "progress", times: int = 1) -> str:
    """What is sent up to the n-th event of that kind."""
    text = ""
    async for part in source:
        text += part.decode()
        if part.startswith(f"event: {until}".encode()):
            times -= 1
            if times == 0:
                break
    await source.aclose()
    return text


def test_over_http_rows_then_the_end_that_was_asked_for(client: TestClient) -> None:
    found = client.get("/v1/views/by_town/changes?up_to=1&as_of=0&columns=town,visits&where=visits > 1")
    assert found.headers["content-type"].startswith("text/event-stream")
    kinds = [(kind, data) for kind, _, data in events(found.text)]
    assert ("change", {"row": {"town": "Rome", "visits": 2}}) in kinds
    assert kinds[-1] == ("progress", {"version": 1})


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("where=visits > 1; DROP TABLE by_town", 400),
        ("where=1 = 1) UNION SELECT * FROM places", 400),
        ("where=town IN (SELECT name FROM places)", 400),
        ("form=other", 400),
        ("as_of=999", 410),
        ("columns=no", 404),
    ],
)
def test_what_is_no_filter_of_one_view_is_refused(client: TestClient, query: str, status: int) -> None:
    assert client.get(f"/v1/views/by_town/changes?{query}&limit=1").status_code == status


@pytest.mark.parametrize("form", ["upserts", "weights"])
def test_resumed_at_any_event_the_rest_is_the_same(filled: ServedLake, form: str) -> None:
    """Also inside a version, and inside a snapshot."""

    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(100))
        newest = reader.head(filled.lake.table("by_town"))
        assert newest is not None
        wish = SubscriptionRequest(
            select(), "weights" if form == "weights" else "upserts", Place(0), up_to=newest.version
        )
        whole = events(await taken(subscribe(filled, hub, wish), times=99))
        assert [kind for kind, _, _ in whole].count("progress") == newest.version
        for number, (_, identity, _) in enumerate(whole):
            again = SubscriptionRequest(select(), wish.form, Place.read(identity), up_to=newest.version)
            if number + 1 < len(whole):
                assert events(await taken(subscribe(filled, hub, again), times=99)) == whole[number + 1 :]
        first = events(await taken(subscribe(filled, hub, SubscriptionRequest(select(), wish.form))))
        assert [kind for kind, _, _ in first] == ["row", "row", "row", "progress"]
        resumed = SubscriptionRequest(select(), wish.form, Place.read(first[0][1]))
        assert events(await taken(subscribe(filled, hub, resumed))) == first[1:]
        hub.close()

    asyncio.run(run())


def test_upserts_and_weights_both_fold_to_the_table(filled: ServedLake) -> None:
    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(100))
        version = log.newest_version(filled.lake.table("by_town"))
        table: dict[str, object] = {}
        for _, _, data in events(
            await taken(subscribe(filled, hub, SubscriptionRequest(select(), place=Place(0), up_to=version)), times=9)
        ):
            if "row" in data:
                table[str(row_of(data)["town"])] = data["row"]
        bag: dict[str, int] = {}
        wish = SubscriptionRequest(select(), "weights", Place(0), up_to=version)
        for _, _, data in events(await taken(subscribe(filled, hub, wish), times=9)):
            if "row" in data:
                row = json.dumps(data["row"])
                bag[row] = bag.get(row, 0) + int(str(data["weight"]))
        expected = reader.read_rows(filled.lake.table("by_town")).to_pylist()
        assert sorted(table) == sorted(row["town"] for row in expected)
        assert {row: count for row, count in bag.items() if count} == {json.dumps(row): 1 for row in expected}
        hub.close()

    asyncio.run(run())


def test_upserts_of_rows_without_a_key_say_what_came_and_what_went(filled: ServedLake) -> None:
    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(100))
        wish = SubscriptionRequest(select("SELECT visits FROM by_town EMIT CHANGES;"), place=Place(1), up_to=2)
        sent = [data for _, _, data in events(await taken(subscribe(filled, hub, wish)))]
        assert sent == [{"deleted": {"visits": 1}, "weight": -1}, {"row": {"visits": 2}, "weight": 1}, {"version": 2}]
        hub.close()

    asyncio.run(run())


def test_a_thousand_subscribers_share_one_read_of_each_version_and_are_told_of_it(
    filled: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = reader.read_changes

    def counted(path: LakePath, after: int, upto: int) -> pa.Table:
        reads.append(upto)
        return read(path, after, upto)

    planned: list[Select] = []

    def planning(statement: Select, *about: Any) -> Subscription:
        planned.append(statement)
        return subscription(statement, *about)

    # No look by itself: who hears of the commit has been told.
    monkeypatch.setattr(feeds, "_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(reader, "read_changes", counted)
    monkeypatch.setattr(hubs, "subscription", planning)

    async def run() -> None:
        hub, heard = Hub(filled.lake, 2_000, Backlog(100)), list[str]()

        def told(table: str) -> None:
            heard.append(table)
            hub.told(table)

        with CommitWatch(filled.lake, told, hub.tables), filled.duckdb_engine() as duckdb_engine:
            catalog, functions = Catalog(filled.lake), Library([], ())
            waiting = []
            for _ in range(1_000):
                wish = SubscriptionRequest(select(), snapshot=False)
                waiting.append(asyncio.create_task(taken(closable(hub.subscribe(wish, catalog, functions)))))
                await asyncio.sleep(0)
            while hub.subscribers < len(waiting):
                await asyncio.sleep(0)
            while "visits" not in heard:  # the watch stands
                filled.append("visits", [{"id": 7, "town": "Rome", "n": 1}])
                await asyncio.sleep(0.1)
            await asyncio.to_thread(filled.refresh, duckdb_engine)
            texts = await asyncio.gather(*waiting)
        assert len(set(texts)) == 1
        assert len(reads) == 1
        assert len(planned) == 1
        assert hub.subscribers == 0
        hub.close()

    asyncio.run(run())


def test_a_slow_subscriber_is_let_go_with_its_place_and_slows_nobody(filled: ServedLake) -> None:
    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(2))
        with filled.duckdb_engine() as duckdb_engine:
            slow = subscribe(filled, hub, SubscriptionRequest(select(), snapshot=True))
            first = (await anext(slow)).decode()
            quick = subscribe(filled, hub, SubscriptionRequest(select(), snapshot=False))
            for number in range(3):
                coming = asyncio.ensure_future(anext(quick))
                while hub.subscribers < 2:
                    await asyncio.sleep(0)
                filled.append("visits", [{"id": 7, "town": "Rome", "n": number}])
                await asyncio.to_thread(filled.refresh, duckdb_engine)
                hub.told("by_town")
                text = (await coming).decode()
                while "event: progress" not in text:
                    text += (await anext(quick)).decode()
            await quick.aclose()
            rest = events(first + await taken(slow, "error"))
            assert rest[-1][2]["code"] == "serve.slow_reader"
            assert hub.dropped == 1
            resumed = SubscriptionRequest(select(), place=Place.read(str(rest[-1][2]["last_event_id"])), up_to=6)
            kinds = [kind for kind, _, _ in events(await taken(subscribe(filled, hub, resumed), times=3))]
            assert kinds == ["change", "progress"] * 3
        hub.close()

    asyncio.run(run())


def delivered(rows: int, size: int) -> Delivered:
    event = PushedEvent("change", Place(1, 1), "x" * size)
    return Delivered([event] * rows + [PushedEvent("progress", Place(1), "{}")], rows * size)


def test_what_a_subscriber_has_not_taken_is_bounded_by_events_and_by_bytes() -> None:
    backlog = Backlog(events=10, size=1_000)
    for version, taken in ((delivered(6, 10), 1), (delivered(1, 600), 1), (delivered(1, 2_000), 0)):
        member, dropped = Member(backlog), list[bool]()
        for _ in range(taken + 1):
            member.offer(version)
            dropped.append(member.dropped)
        assert dropped == [False] * taken + [True]
        assert (member.waiting, member.take(), backlog.held) == (deque(), None, 0)


def test_what_several_have_not_taken_counts_once(filled: ServedLake) -> None:
    """Together they may be behind by as much; then those go that are furthest behind, and nobody who keeps up."""

    async def run() -> None:
        backlog = Backlog(events=10_000, size=10_000, total=1_500)
        hub = Hub(filled.lake, 10, backlog)
        feed = hub._feed(subscription(select(), Catalog(filled.lake), filled.lake), "upserts", Library([], ()))
        quick, slow, other = (feed.join(backlog) for _ in range(3))
        events = [PushedEvent("change", Place(4, 1), "x" * 250), PushedEvent("progress", Place(4), "{}")]
        for number in range(3):
            feed._deliver(4 + number, events)
            assert quick.take() == events
            assert backlog.held == (number + 1) * 504 if number < 2 else True
        assert [each.dropped for each in (quick, slow, other)] == [False, True, True]
        assert (feed.members, backlog.held) == ([quick], 0)
        feed._deliver(9, events)
        feed.leave(quick)
        assert backlog.held == 0
        hub.close()

    asyncio.run(run())


def test_changes_that_are_not_kept_any_more_ask_for_a_snapshot(filled: ServedLake) -> None:
    on_disk(log.commit_file(filled.lake.table("by_town"), 1)).unlink()

    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(100))
        with pytest.raises(ChangesGone, match="not kept"):
            subscribe(filled, hub, SubscriptionRequest(select(), place=Place(0)))
        with pytest.raises(ChangesGone, match="made anew"):
            subscribe(filled, hub, SubscriptionRequest(select(), place=Place(2, table="00000000")))
        hub.close()

    asyncio.run(run())


def test_a_subscriber_hears_that_the_table_was_dropped(filled: ServedLake) -> None:
    async def run() -> None:
        hub = Hub(filled.lake, 10, Backlog(100))
        events_of = subscribe(filled, hub, SubscriptionRequest(select(), snapshot=False))
        coming = asyncio.ensure_future(taken(events_of, "error"))
        while hub.subscribers < 1:
            await asyncio.sleep(0)
        assert list(Interpreter(filled.settings).run("DROP TABLE by_town;"))
        hub.told("by_town")
        assert events(await asyncio.wait_for(coming, PATIENCE_SECONDS))[-1][2]["code"] == "serve.restart_from_snapshot"
        hub.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("shown", "ends"), [("town, COUNT(*) AS visits, SUM(n) AS n, MAX(n) AS most", False), ("town, COUNT(*) AS n", True)]
)
def test_a_view_that_is_replaced_goes_on_unless_a_column_that_is_asked_for_is_gone(
    filled: ServedLake, shown: str, ends: bool
) -> None:
    made = subscription(select("SELECT town, visits FROM by_town EMIT CHANGES;"), Catalog(filled.lake), filled.lake)
    head = log.newest_version(made.path)
    assert head is not None
    text = f"CREATE OR REPLACE TABLE by_town AS SELECT {shown} FROM visits WHERE town <> 'Lima' GROUP BY town;"
    assert list(Interpreter(filled.settings).run(text))
    if ends:
        with pytest.raises(ChangesGone, match="no column 'visits' any more"):
            made.changes(head, head + 1)
        return
    with QueryEngine(Library((), ())) as duck:
        assert list(made.visible(duck, made.changes(head, head + 1))) == [Tombstone(("Lima", None))]


def test_the_watch_tells_of_a_commit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is notified: it does not look by itself."""
    monkeypatch.setattr(watches, "_SWEEP_MS", 3_600_000)
    served = ServedLake(settings, DEFINITIONS)
    told: list[str] = []

    def committed_and_told() -> bool:
        # Again and again: one that comes before the watch stands is not told.
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
        return "visits" in told

    with CommitWatch(served.lake, told.append, lambda: []):
        wait_until(committed_and_told, "no commit is told", 0.2)


def test_a_subscription_does_not_outlive_its_token(filled: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "_ALLOWED_SECONDS", 0.0)
    asked: list[None] = []

    def allowed() -> None:
        asked.append(None)
        if len(asked) > 2:
            raise Unauthenticated("the request has no valid token")

    async def run() -> str:
        hub = Hub(filled.lake, 10, Backlog(100))
        text = await taken(subscribe(filled, hub, SubscriptionRequest(select(), allowed=allowed)), until="nothing")
        assert hub.subscribers == 0
        hub.close()
        return text

    found = events(asyncio.run(run()))
    assert [kind for kind, _, _ in found] == ["row", "row", "error"]
    assert found[-1][2]["code"] == "serve.unauthenticated"
    assert found[-1][1] == found[1][1], "with a new token it goes on after the last event that it got"
