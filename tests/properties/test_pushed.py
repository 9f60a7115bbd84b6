"""Whoever applies what a push query gives, by its documented meaning and no more, holds what its SELECT gives.

Any view over any history, by each way of following it: from the snapshot of some version on, broken off anywhere and
resumed: some sixty queries, and twenty times as many in `make nightly`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli.output import CommandOutput
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve import subscription as pushing
from strandline.jobs.serve.results import LiveRows, Rows
from strandline.jobs.server.state.events import Form, Place
from strandline.jobs.server.state.feed import Backlog
from strandline.jobs.server.state.hub import Hub, SubscriptionRequest
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.delta import log
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.properties.on_delta import PIPELINE, feed, refreshed
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.examples import examples, seed_of

_VIEWS = 24
_FEWEST = 20


class Client:
    """A client's table: what was said, applied as docs/serving.md and docs/sql.md have it.

    Args:
        key: the columns of the view's key, where the query shows all of them; else none.
    """

    def __init__(self, key: Sequence[int]) -> None:
        self._key = key
        self._bag: Counter[str] = Counter()
        self._rows: dict[str, str] = {}

    def put(self, row: Sequence[Any]) -> None:
        """A row of a stream, or in the place of its key's."""
        if self._key:
            self._rows[_text([row[place] for place in self._key])] = _text(row)
        else:
            self.add(row, 1)

    def remove(self, row: Sequence[Any]) -> None:
        """The key's row is gone."""
        del self._rows[_text([row[place] for place in self._key])]

    def add(self, row: Sequence[Any], weight: int) -> None:
        """Rows more or less."""
        self._bag[_text(row)] += weight
        assert self._bag[_text(row)] >= 0, f"{row} went and was not there"

    @property
    def held(self) -> Counter[str]:
        return +(self._bag + Counter(self._rows.values()))


def _text(row: Iterable[Any]) -> str:
    return json.dumps([_plain(value) for value in row], sort_keys=True)


def _plain(value: Any) -> Any:
    """0.0 and -0.0 are one value."""
    match value:
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case float():
            return value + 0.0
        case _:
            return value


def upserts(client: Client, names: Sequence[str], said: dict[str, Any]) -> None:
    shown = said["row"] if "row" in said else said["deleted"]
    row = [shown.get(name) for name in names]
    if "weight" in said:
        client.add(row, said["weight"])
    elif "deleted" in said:
        client.remove(row)
    else:
        client.put(row)


def weights(client: Client, names: Sequence[str], said: dict[str, Any]) -> None:
    client.add([said["row"][name] for name in names], said["weight"])


def columns(client: Client, _: Sequence[str], said: dict[str, Any]) -> None:
    if "retracted" in said:
        client.add(said["retracted"], -1)
    elif said.get("tombstone"):
        client.remove(said["columns"])
    if not said.get("tombstone"):
        client.put(said["columns"])


def lines(client: Client, names: Sequence[str], said: dict[str, Any]) -> None:
    row = [said[name] for name in names]
    if "__weight" in said:
        client.add(row, said["__weight"])
    elif said.get("__tombstone"):
        client.remove(row)
    else:
        client.put(row)


_APPLIED: dict[Form, Callable[[Client, Sequence[str], dict[str, Any]], None]] = {
    "upserts": upserts,
    "weights": weights,
    "columns": columns,
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(examples(3)))
def test_whoever_applies_every_change_holds_what_the_select_gives(
    part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = seed_of(part)
    pick, tally, lake = Picker.seeded(seed), Tally(), LakeLayout(tmp_path / "lake")
    example = scenario(pick, _VIEWS, tally, catalog=Catalog(lake), most=40, cuts=6, in_order=True)
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        for epoch, batch in enumerate(example.history):
            feed(lake, batch, epoch)
            assert not refreshed(RunContext(None, lake, f"{PIPELINE}/1", duckdb_engine=duckdb_engine))
    followed = 0
    for view in Catalog(lake).definitions():
        if not isinstance(view, View) or log.newest_version(lake.table(view.name)) is None:
            continue
        query, key = _query(pick, view)
        try:
            _check(pick, lake, view.name, query, key, capsys, monkeypatch)
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{view.sql}\n{query}")
            raise
        followed += 1
    with capsys.disabled():
        print(f"\nseed {seed}: {followed} queries followed by each way")
    assert followed >= _FEWEST


def _query(pick: Picker, view: View) -> tuple[str, list[int]]:
    """A query of one view, and the places of its whole key; none where it does not show that."""
    names = [column.name for column in view.columns]
    shown = list(names) if pick.chance(60) else pick.some(names, 1, len(names))
    items = [f"{name} AS r{place}" if pick.chance(20) else name for place, name in enumerate(shown)]
    where = f" WHERE {pick.one(names)} IS {pick.one(['NULL', 'NOT NULL', 'NOT NULL'])}" if pick.chance(40) else ""
    whole = view.row_key if view.row_key and set(view.row_key) <= set(shown) else ()
    return f"SELECT {', '.join(items)} FROM {view.name}{where}", [shown.index(name) for name in whole]


def _check(
    pick: Picker,
    lake: LakeLayout,
    name: str,
    query: str,
    key: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Interpreter(load_settings(lake=lake.root))
    (pulled,) = session.run(query)
    assert isinstance(pulled, Rows)
    capsys.readouterr()
    CommandOutput(json=True).write(pulled)
    wanted = Counter(_text(json.loads(line).values()) for line in capsys.readouterr().out.splitlines())
    newest = log.newest_version(lake.table(name))
    assert newest is not None
    for form, apply in _APPLIED.items():
        client = Client([] if form == "weights" else key)
        for said in asyncio.run(_followed(pick, lake, query, form, pick.count(0, newest), newest)):
            apply(client, pulled.names, said)
        assert client.held == wanted, form
    client = Client(key)
    for line in _printed(session, query, sorted({pick.count(0, newest), newest}), capsys, monkeypatch):
        lines(client, pulled.names, json.loads(line))
    assert client.held == wanted, "command line"


async def _followed(
    pick: Picker, lake: LakeLayout, query: str, form: Form, first: int, newest: int
) -> list[dict[str, Any]]:
    """What a subscriber is sent from the snapshot of the first version on, who leaves and comes back now and then."""
    (statement,) = parse(f"{query} EMIT CHANGES;")
    assert isinstance(statement, Select)
    hub, place, sent, progressed = Hub(lake, 10, Backlog(10_000)), Place(first, 0, True), list[dict[str, Any]](), -1
    try:
        while progressed < newest:
            stay = pick.count(1, 12)
            _, events = hub.follow(
                SubscriptionRequest(statement, form, place, up_to=newest), Catalog(lake), Library([], ())
            )
            async for event in events:
                assert event is not None
                assert event.kind != "error", event.data
                # As its client sends it back.
                place, stay = Place.read(str(event.place)), stay - 1
                if event.kind == "progress":
                    progressed = event.place.version
                else:
                    sent.append(json.loads(event.data))
                if stay == 0:
                    break
            await events.aclose()
    finally:
        hub.close()
    return sent


class _Ended(Exception):
    """There are no more versions to look for."""


def _printed(
    session: Interpreter,
    query: str,
    heads: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """What `strandline sql --json` prints while the table goes through these versions."""
    left = iter(heads)

    def next_head(*_: object) -> int:
        found = next(left, None)
        if found is None:
            raise _Ended
        return found

    (live,) = session.run(f"{query} EMIT CHANGES")
    assert isinstance(live, LiveRows)
    with monkeypatch.context() as patch:
        patch.setattr(pushing, "_newest", next_head)
        patch.setattr(pushing, "_WAIT_SECONDS", 0.0)
        with pytest.raises(_Ended):
            CommandOutput(json=True).write(live)
    return capsys.readouterr().out.splitlines()
