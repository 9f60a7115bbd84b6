"""Nexmark's events: people register, open auctions, and bid. Every event is a function of (seed, number).

    number  0       1 2 3      4 … 49     50      51 …
            person  auctions   bids       person  …

Of 50 events one is a person, three are auctions and 46 bids. Bids go to one hot auction half of the time, else to one
of the last hundred; three of four come from a hot bidder, and three of four auctions from a hot seller. What differs
from the Java generator: it repeats itself, bidders' ids are not shifted (bids find their people), and a bid has an id,
so that it can be changed or withdrawn later (`amendments`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from benchmarks.nexmark.draws import Draws

Kind = Literal["person", "auction", "bid"]

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
ROUND = PEOPLE + AUCTIONS + BIDS
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
_IN_FLIGHT = 100
_ACTIVE_PEOPLE = 1000
# Auctions and bids may name people that register a little later, as if events had been swapped on their way.
_LEAD = 10
# Of that many people (auctions) that follow each other one is hot.
_HOT_EVERY = 100
_HOT_AUCTIONS, _HOT_BIDDERS, _HOT_SELLERS, _HOT_CHANNELS = 2, 4, 4, 2
_CHANNELS = 10_000
_KNOWN_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        key: the id of the person, auction or bid.
        row: the columns by name; None: it is withdrawn.
    """

    kind: Kind
    key: int
    row: dict[str, Any] | None


@dataclass(frozen=True)
class Generator:
    """Makes events.

    Attributes:
        rate: events per second of the events' own time.
        start: the time of event 0.
    """

    seed: int = 1
    rate: float = 10_000.0
    start: datetime = datetime(2015, 7, 15, tzinfo=UTC)

    def events(self, first: int, last: int) -> Iterator[Event]:
        """The events with numbers from `first` up to, and without, `last`."""
        return (self.event(number) for number in range(first, last))

    def event(self, number: int) -> Event:
        """The event of that number."""
        draws = Draws(self.seed, number)
        place = number % ROUND
        if place < PEOPLE:
            return self._person(number, draws)
        return self._auction(number, draws) if place < PEOPLE + AUCTIONS else self._bid(number, draws)

    def time(self, number: int) -> datetime:
        """When that event happened, to the millisecond."""
        return self.start + timedelta(milliseconds=int(number * 1000 / self.rate))

    def _person(self, number: int, draws: Draws) -> Event:
        key = FIRST_ID + newest_person(number)
        row = {
            "id": key,
            "name": f"{draws.pick(_FIRST_NAMES)} {draws.pick(_LAST_NAMES)}",
            "email_address": f"{draws.text(7)}@{draws.text(5)}.com",
            "credit_card": " ".join(f"{draws.below(10_000):04}" for _ in range(4)),
            "city": draws.pick(_CITIES),
            "state": draws.pick(_STATES),
            "date_time": self.time(number),
            "extra": _extra(draws, 110),
        }
        return Event("person", key, row)

    def _auction(self, number: int, draws: Draws) -> Event:
        key = FIRST_ID + newest_auction(number)
        hot = draws.below(_HOT_SELLERS) > 0
        seller = newest_person(number) // _HOT_EVERY * _HOT_EVERY if hot else _some_person(number, draws)
        first_price = price(draws)
        opened = self.time(number)
        # An auction lasts, on average, until as many more as may be in flight have been opened.
        horizon = self.time(number + _IN_FLIGHT * ROUND // AUCTIONS) - opened
        length = 1 + draws.below(max(int(horizon / timedelta(milliseconds=1)) * 2, 1))
        row = {
            "id": key,
            "item_name": draws.text(3 + draws.below(18)),
            "description": draws.text(3 + draws.below(98)),
            "initial_bid": first_price,
            "reserve": first_price + price(draws),
            "date_time": opened,
            "expires": opened + timedelta(milliseconds=length),
            "seller": FIRST_ID + seller,
            "category": FIRST_CATEGORY + draws.below(CATEGORIES),
            "extra": _extra(draws, 390),
        }
        return Event("auction", key, row)

    def _bid(self, number: int, draws: Draws) -> Event:
        auction, bidder = newest_auction(number), newest_person(number)
        hot_auction = draws.below(_HOT_AUCTIONS) > 0
        auction = auction // _HOT_EVERY * _HOT_EVERY if hot_auction else _some_auction(number, draws)
        hot_bidder = draws.below(_HOT_BIDDERS) > 0
        # The second of the hundred, so that nobody is hot as a seller and as a bidder.
        bidder = bidder // _HOT_EVERY * _HOT_EVERY + 1 if hot_bidder else _some_person(number, draws)
        channel, url = _channel(draws)
        row = {
            "id": number,
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": price(draws),
            "channel": channel,
            "url": url,
            "date_time": self.time(number),
            "extra": _extra(draws, 60),
        }
        return Event("bid", number, row)


def side_input() -> list[dict[str, Any]]:
    """The table of query 13: `{"key", "value"}` for each remainder of an auction's id, but for every third."""
    return [{"key": key, "value": f"side {key}"} for key in range(10_000) if key % 3]


def newest_person(number: int) -> int:
    """The newest person's id, from 0, when event `number` happens."""
    return number // ROUND * PEOPLE + min(number % ROUND, PEOPLE - 1)


def newest_auction(number: int) -> int:
    """The newest auction's id, from 0, when event `number` happens; 0 also before there is one."""
    rounds, place = divmod(number, ROUND)
    return max(rounds * AUCTIONS + min(place - PEOPLE, AUCTIONS - 1), 0)


def price(draws: Draws) -> int:
    """Cents, from 100 to 100 millions, as many of each order of magnitude."""
    return int(10 ** (draws.fraction() * 6) * 100)


def _some_person(number: int, draws: Draws) -> int:
    people = newest_person(number) + 1
    active = min(people, _ACTIVE_PEOPLE)
    return people - active + draws.below(active + _LEAD)


def _some_auction(number: int, draws: Draws) -> int:
    newest = newest_auction(number)
    oldest = max(newest - _IN_FLIGHT, 0)
    return oldest + draws.below(newest - oldest + 1)


def _channel(draws: Draws) -> tuple[str, str]:
    """A channel and its URL, which is the same each time; nine of ten unknown channels carry an id in it."""
    if draws.below(_HOT_CHANNELS) > 0:
        known = draws.below(len(_KNOWN_CHANNELS))
        return _KNOWN_CHANNELS[known], _url(Draws(-1, known))
    number = draws.below(_CHANNELS)
    own = Draws(-2, number)
    url = _url(own)
    return f"channel-{number}", url if own.below(10) == 0 else f"{url}&channel_id={own.below(2**31)}"


def _url(draws: Draws) -> str:
    return f"https://www.nexmark.com/{draws.text(5)}/{draws.text(5)}/{draws.text(5)}/item.htm?query=1"


def _extra(draws: Draws, average: int) -> str:
    """Filling, up to a fifth longer or shorter than the average."""
    spread = average // 5
    return draws.text(average - spread + draws.below(2 * spread + 1))
