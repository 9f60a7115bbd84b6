"""The generator: the same events each time, in Nexmark's proportions, naming things that are there."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nexmark.amendments import amended
from benchmarks.nexmark.generator import FIRST_ID, Event, Generator, newest_auction, newest_person

NUMBERS = st.integers(0, 10**9)


@given(seed=st.integers(0, 2**64 - 1), number=NUMBERS)
def test_an_event_is_a_function_of_seed_and_number(seed: int, number: int) -> None:
    generator = Generator(seed)
    assert generator.event(number) == Generator(seed).event(number)
    [alone] = generator.events(number, number + 1)
    assert alone == generator.event(number)


def test_the_first_events_are_what_they_always_were() -> None:
    """Figures of other days can be compared only as long as this holds."""
    person, auction, *_, bid = Generator().events(0, 5)
    assert (person.row["name"], person.row["state"]) == ("Deiter Abrams", "WA")  # type: ignore[index]
    assert (auction.row["seller"], auction.row["initial_bid"]) == (1000, 6420)  # type: ignore[index]
    assert (bid.row["auction"], bid.row["price"], bid.row["channel"]) == (1000, 42891581, "channel-7544")  # type: ignore[index]


def test_another_seed_gives_other_events() -> None:
    assert list(Generator(1).events(0, 50)) != list(Generator(2).events(0, 50))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    for first in (0, 7, 12_345):
        kinds = Counter(event.kind for event in Generator().events(first, first + 50))
        assert kinds == {"person": 1, "auction": 3, "bid": 46}


def test_ids_of_people_and_auctions_have_no_holes() -> None:
    events = list(Generator().events(0, 5_000))
    for kind in ("person", "auction"):
        keys = [event.key for event in events if event.kind == kind]
        assert keys == list(range(FIRST_ID, FIRST_ID + len(keys)))


@given(number=NUMBERS)
def test_bids_name_auctions_that_are_open_to_bids_and_people_up_to_a_few_ahead(number: int) -> None:
    event = Generator().event(number)
    if event.kind == "bid":
        assert event.row is not None
        assert FIRST_ID <= event.row["auction"] <= FIRST_ID + newest_auction(number)
        assert FIRST_ID <= event.row["bidder"] <= FIRST_ID + newest_person(number) + 10
        assert 100 <= event.row["price"] < 100_000_000


def test_half_of_the_bids_go_to_a_hot_auction_and_three_of_four_come_from_a_hot_bidder() -> None:
    bids = [event.row for event in Generator().events(500_000, 510_000) if event.kind == "bid" and event.row]
    hot_auctions = sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids)
    hot_bidders = sum(bid["bidder"] % 100 == 1 for bid in bids) / len(bids)
    assert 0.48 < hot_auctions < 0.53
    assert 0.73 < hot_bidders < 0.78


def test_an_auction_closes_after_it_has_opened() -> None:
    auctions = [event.row for event in Generator(rate=20).events(0, 5_000) if event.kind == "auction" and event.row]
    assert all(auction["expires"] > auction["date_time"] for auction in auctions)
    longest = max(auction["expires"] - auction["date_time"] for auction in auctions)
    assert longest > timedelta(seconds=100)


def test_one_bid_and_auction_of_twenty_is_amended_later_and_nothing_else_moves() -> None:
    events = list(Generator().events(0, 20_000))
    found = list(amended(events, seed=1))
    first, later, seen = list[Event](), list[Event](), set[tuple[str, int]]()
    for event in found:
        (later if (event.kind, event.key) in seen else first).append(event)
        seen.add((event.kind, event.key))
    assert first == events
    assert 0.04 < len(later) / sum(event.kind != "person" for event in events) < 0.06
    withdrawn = sum(event.row is None for event in later)
    assert 0.4 < withdrawn / len(later) < 0.6
    assert {event.kind for event in later} == {"auction", "bid"}
    assert list(amended(events, seed=1)) == found
