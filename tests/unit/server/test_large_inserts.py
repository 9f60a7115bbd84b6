"""Inserts of many rows: decoded beside the event loop, and to the same rows as in one piece."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, ClassVar

import hypothesis.strategies as st
import orjson
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.server.http import rows as rows_route
from strandline.jobs.server.http import streams
from strandline.state_store.replicas.state import ReplicaReading
from tests.support.server_of import server_of
from tests.support.waiting import wait_until

ROWS = [{"id": number, "town": "Rome", "n": number} for number in range(3_000)]
SECONDS = 30
VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def test_a_look_up_is_answered_while_a_large_body_is_decoded(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, looked_up, rows_in = Event(), Event(), streams.rows_in

    def decoded(body: bytes) -> list[dict[str, Any]]:
        begun.set()
        assert looked_up.wait(SECONDS)
        return rows_in(body)

    monkeypatch.setattr(streams, "rows_in", decoded)
    with ThreadPoolExecutor(1) as beside:
        inserted = beside.submit(client.post, "/v1/streams/visits", json={"rows": ROWS})
        assert begun.wait(SECONDS)
        assert client.get("/v1/views/by_town/rows/Rome").status_code == 200
        looked_up.set()
        assert inserted.result().json()["inserted"] == len(ROWS)


def test_a_look_up_is_answered_while_many_rows_are_read(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def live() -> bool:
        client.get("/v1/views/by_town/rows/Rome")
        found = server_of(client).replicas.find("by_town")
        return found is not None and found.version is not None

    wait_until(live, "the replica is not LIVE")
    begun, looked_up = Event(), Event()
    range_of = ReplicaReading.range

    def slow(self: ReplicaReading, *asked: Any) -> Any:
        begun.set()
        assert looked_up.wait(SECONDS)
        return range_of(self, *asked)

    monkeypatch.setattr(ReplicaReading, "range", slow)
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(client.get, f"/v1/views/by_town/rows?limit={rows_route._FEW_ROWS + 1}")
        assert begun.wait(SECONDS)
        assert client.get("/v1/views/by_town/rows/Rome").status_code == 200
        looked_up.set()
        assert len(found.result().json()["rows"]) == 3


def test_rows_are_let_go_a_thousand_at_a_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of all of them, freed at once, would keep the interpreter to itself."""

    class Counted(list[Any]):
        sizes: ClassVar[list[int]] = []

        def __delitem__(self, part: Any) -> None:
            self.sizes.append(len(self[part]))
            super().__delitem__(part)

    rows_in = streams.rows_in
    monkeypatch.setattr(streams, "rows_in", lambda body: Counted(rows_in(body)))
    assert client.post("/v1/streams/visits", json={"rows": ROWS}).json()["inserted"] == len(ROWS)
    assert Counted.sizes == [1000] * 3


def outcome(body: bytes) -> Any:
    try:
        return streams.rows_in(body)
    except RequestRefused as error:
        return str(error)


@given(
    st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=4),
    st.sampled_from([None, 1, (",", ":")]),
    st.sampled_from(["", " ", "}", ', "more": 1', "]"]),
    st.booleans(),
)
@example([{"a": float("nan")}], None, "", False)
@example([{"a": "\ud800"}], None, "", True)
@example([], None, "", False)
def test_in_pieces_the_rows_are_those_of_the_whole(
    rows: list[dict[str, Any]], form: Any, behind: str, escaped: bool
) -> None:
    text = json.dumps({"rows": rows}, ensure_ascii=escaped, **({"separators": form} if form != 1 else {"indent": 1}))
    body = (text[:-1] + behind + text[-1]).encode(errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        whole = outcome(body)
        patch.setattr(streams, "SMALL_BYTES", 0)
        assert outcome(body) == whole


def test_bodies_that_nest_too_deep_are_refused() -> None:
    deep = b'{"rows": [{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    assert len(deep) > streams.SMALL_BYTES
    with pytest.raises(RequestRefused):
        streams.rows_in(deep)


def test_a_plain_body_is_not_decoded_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    body = orjson.dumps({"rows": ROWS})
    monkeypatch.delattr(streams, "json_object")
    assert streams.rows_in(body) == ROWS
