"""Snapshots, and versions that are sent again: encoded once for all who take them, in pieces, bounded together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from strandline.jobs.serve.errors import Busy
from strandline.jobs.server.state import events as module
from strandline.jobs.server.state.events import Place, PushedEvent, Replay, Replays

FIRST = Place(7, 0, True, "abc")


def events(count: int = 5_000) -> Iterator[PushedEvent]:
    for number in range(1, count + 1):
        yield PushedEvent("row", Place(7, number, True, "abc"), f'{{"row": {{"ü": {number}}}}}')


def taken(replay: Replay, sent: int = 0) -> tuple[list[PushedEvent], int]:
    """All events after so many, and the most bytes of a piece."""
    found: list[PushedEvent] = []
    largest = 0
    while piece := replay.piece(sent):
        found += piece
        sent = piece[-1].place.sent or 0
        largest = max(largest, sum(len(each.data) for each in piece))
    return found, largest


@pytest.mark.parametrize("sent", [0, 1, 4_999, 5_000, 2_731])
def test_pieces_are_the_events_from_any_place_on(sent: int) -> None:
    async def run() -> None:
        replays = Replays()
        async with replays.opened("x", FIRST, events) as replay:
            found, largest = taken(replay, sent)
            assert found == list(events())[sent:]
            assert largest < 2 * module._PIECE_BYTES
        replays.close()

    asyncio.run(run())


def test_many_takers_share_one_encoding_which_goes_with_the_last() -> None:
    made = 0

    def counted() -> Iterator[PushedEvent]:
        nonlocal made
        made += 1
        yield from events(10)

    async def run() -> None:
        replays = Replays()
        for _ in range(2):
            async with AsyncExitStack() as opened:
                found = [await opened.enter_async_context(replays.opened("x", FIRST, counted)) for _ in range(20)]
                assert len({id(each) for each in found}) == 1
                assert [len(taken(each)[0]) for each in found] == [10] * 20
        replays.close()

    asyncio.run(run())
    assert made == 2


def test_all_together_are_bounded_and_what_is_let_go_makes_room() -> None:
    async def run() -> None:
        replays = Replays(most_bytes=1_500 * len('{"row": {"ü": 1000}}'))
        for _ in range(3):
            async with replays.opened("x", FIRST, lambda: events(1_000)):
                with pytest.raises(Busy):
                    await replays.opened("y", FIRST, lambda: events(1_000)).__aenter__()
            await asyncio.sleep(0)
        replays.close()

    asyncio.run(run())


def test_one_that_fails_fails_for_all_and_is_made_again_for_the_next() -> None:
    def failing() -> Iterator[PushedEvent]:
        yield from events(3)
        raise Busy("no")

    async def run() -> None:
        replays = Replays()
        for _ in range(2):
            with pytest.raises(Busy):
                await replays.opened("x", FIRST, failing).__aenter__()
        async with replays.opened("x", FIRST, events) as replay:
            assert len(replay.piece(0)) > 1
        replays.close()

    asyncio.run(run())
