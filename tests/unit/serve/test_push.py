"""Push queries: a snapshot, then every change, in terms of the row of a key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve import subscription
from strandline.jobs.serve.results import LiveRows, Tombstone, Weighted
from strandline.jobs.serve.subscription import Subscription
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import TableMissing
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append, delete, events, update

DEFINITIONS = """
    CREATE STREAM checkins (id BIGINT KEY, place VARCHAR) WITH (KAFKA_TOPIC = 'checkins');
    CREATE TABLE places AS SELECT id, COUNT(*) AS n, LATEST_BY_OFFSET(place) AS place FROM checkins GROUP BY id;
    CREATE MATERIALIZED VIEW counts AS SELECT COUNT(*) AS n FROM checkins GROUP BY place;
"""


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    interpreter = Interpreter(settings)
    assert list(interpreter.run(DEFINITIONS))
    return interpreter


def place(key: int, n: int, name: str | None) -> dict[str, object]:
    return {"id": key, "n": n, "place": name}


def subscribe(session: Interpreter, text: str) -> LiveRows:
    *_, result = session.run(text)
    assert isinstance(result, LiveRows)
    return result


def take(
    session: Interpreter, text: str, count: int, work: Callable[[], object] = lambda: None, after: int = 0
) -> list[object]:
    """The first `count` changes; the test's own time limit is what ends it when they do not come.

    Args:
        work: done when so many of them have come: those of the snapshot.
    """
    rows = subscribe(session, text).rows
    found: list[object] = list(islice(rows, after))
    work()
    return [*found, *islice(rows, count - after)]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets work be done once: when the subscriber has found nothing new, and is about to wait."""
    newest = subscription._newest

    def once(work: Callable[[], object]) -> None:
        looks: list[int] = []

        def looked(made: Subscription, lake: LakeLayout) -> int:
            looks.append(newest(made, lake))
            if len(looks) == 2:
                work()
            return looks[-1]

        monkeypatch.setattr(subscription, "_newest", looked)

    return once


def test_the_snapshot_comes_first_then_the_changes_of_each_version(session: Interpreter, lake: LakeLayout) -> None:
    append(lake, "places", [place(1, 1, "Rome"), place(2, 1, "Paris")])

    def change() -> None:
        update(lake, "places", 1, "id = 1", n="2", place="'Oslo'")
        append(lake, "places", [place(3, 1, "Bonn")], 2)
        delete(lake, "places", 3, "id = 2")

    rows = take(session, "SELECT * FROM places EMIT CHANGES", 5, change, after=2)
    assert rows == [(1, 1, "Rome"), (2, 1, "Paris"), (1, 2, "Oslo"), (3, 1, "Bonn"), Tombstone((2, None, None))]


def test_a_view_without_a_table_is_waited_for(
    session: Interpreter, lake: LakeLayout, waits: Callable[[Callable[[], object]], None]
) -> None:
    waits(lambda: append(lake, "places", [place(1, 1, "Rome")]))
    assert take(session, "SELECT id FROM places EMIT CHANGES", 1) == [(1,)]


def test_a_change_that_the_select_does_not_show_is_no_row(session: Interpreter, lake: LakeLayout) -> None:
    """Only `n` changes at first: a subscriber to `place` hears of the second update alone."""
    append(lake, "places", [place(1, 1, "Rome")])

    def change() -> None:
        update(lake, "places", 1, "id = 1", n="2")
        update(lake, "places", 2, "id = 1", place="'Oslo'")

    found = take(session, "SELECT id, place FROM places EMIT CHANGES", 2, change, after=1)
    assert found == [(1, "Rome"), (1, "Oslo")]


def test_a_row_that_leaves_the_where_is_a_tombstone_and_one_that_enters_is_a_row(
    session: Interpreter, lake: LakeLayout
) -> None:
    append(lake, "places", [place(1, 1, "Rome"), place(2, 5, "Paris")])

    def change() -> None:
        update(lake, "places", 1, "id = 2", n="0")
        update(lake, "places", 2, "id = 1", n="7")

    rows = take(session, "SELECT n, id FROM places WHERE n > 1 EMIT CHANGES", 3, change, after=1)
    assert rows == [(5, 2), Tombstone((None, 2)), (7, 1)]


def test_a_stream_gives_its_events_in_their_order(session: Interpreter, lake: LakeLayout) -> None:
    events(lake, "checkins", [{"id": 9, "place": "a"}, {"id": 1, "place": "b"}])

    def more() -> None:
        events(lake, "checkins", [{"id": 5, "place": "c"}, {"id": 1, "place": "b"}], 2, 1)

    rows = take(session, "SELECT rowoffset, id, place FROM checkins EMIT CHANGES", 4, more, after=2)
    assert rows == [(0, 9, "a"), (1, 1, "b"), (2, 5, "c"), (3, 1, "b")]


def test_rows_that_no_key_tells_apart_come_and_go_by_their_weights(session: Interpreter, lake: LakeLayout) -> None:
    append(lake, "counts", [{"n": 1}, {"n": 4}, {"n": 1}])

    def change() -> None:
        delete(lake, "counts", 1, "n = 4")
        update(lake, "counts", 2, "n = 1", n="2")

    rows = take(session, "SELECT n FROM counts EMIT CHANGES", 8, change, after=3)
    assert rows == [
        *(Weighted((1,), 1), Weighted((1,), 1), Weighted((4,), 1)),
        Weighted((4,), -1),
        *(Weighted((1,), -1), Weighted((1,), -1), Weighted((2,), 1), Weighted((2,), 1)),
    ]


def test_a_select_without_the_key_gives_the_row_that_went_as_well(session: Interpreter, lake: LakeLayout) -> None:
    """Also where the key has another spelling: only a column by itself is told to be the key's."""
    append(lake, "places", [place(1, 1, "Rome"), place(2, 1, "Rome")])
    rows = take(
        session,
        "SELECT id + 0 AS id, place FROM places EMIT CHANGES",
        4,
        lambda: update(lake, "places", 1, "id = 2", place="'Oslo'"),
        after=2,
    )
    assert rows[2:] == [Weighted((2, "Rome"), -1), Weighted((2, "Oslo"), 1)]


def test_latest_leaves_the_snapshot_out(
    session: Interpreter, lake: LakeLayout, waits: Callable[[Callable[[], object]], None]
) -> None:
    append(lake, "places", [place(1, 1, "Rome")])
    waits(lambda: append(lake, "places", [place(2, 1, "Oslo")], 1))
    text = "SET 'auto.offset.reset' = 'latest'; SELECT id FROM places EMIT CHANGES"
    assert take(session, text, 1) == [(2,)]


def test_limit_ends_the_query(session: Interpreter, lake: LakeLayout) -> None:
    append(lake, "places", [place(1, 1, "Rome"), place(2, 1, "Oslo")])
    assert list(subscribe(session, "SELECT id FROM places EMIT CHANGES LIMIT 1").rows) == [(1,)]
    assert list(subscribe(session, "SELECT id FROM places EMIT CHANGES LIMIT 0").rows) == []


def test_a_table_that_is_dropped_ends_the_subscription_with_an_error(session: Interpreter, lake: LakeLayout) -> None:
    append(lake, "places", [place(1, 1, "Rome")])

    def drop() -> None:
        assert list(Interpreter(session.settings).run("DROP TABLE places"))

    with pytest.raises(TableMissing, match="was dropped"):
        take(session, "SELECT id FROM places EMIT CHANGES", 2, drop, after=1)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT a.id FROM checkins a JOIN places b ON a.id = b.id EMIT CHANGES", "JOIN"),
        ("SELECT id, COUNT(*) FROM checkins GROUP BY id EMIT CHANGES", "GROUP BY"),
        ("SELECT DISTINCT id FROM checkins EMIT CHANGES", "DISTINCT"),
        ("SELECT COUNT(*) FROM checkins EMIT CHANGES", "does more"),
        ("SELECT id FROM checkins UNION SELECT id FROM places EMIT CHANGES", "EMIT"),
        ("SELECT id FROM places WHERE n = (SELECT MAX(n) FROM places) EMIT CHANGES", "does more"),
    ],
)
def test_what_a_push_query_cannot_do_is_refused_by_name(session: Interpreter, query: str, named: str) -> None:
    with pytest.raises(NotSupported, match=named):
        subscribe(session, query)
