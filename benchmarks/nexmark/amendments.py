"""The variant with retractions: some bids and auctions are changed or withdrawn a while after they came in.

events   b1 b2 b3 b4 b5 …          with amendments   b1 b2 b3 b2' b4 −b1 b5 …
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from benchmarks.nexmark.draws import Draws
from benchmarks.nexmark.generator import CATEGORIES, FIRST_CATEGORY, FIRST_ID, Event, price

# Long enough that most amendments come in a later batch than what they amend.
_LONGEST_DELAY = 500


def amended(events: Iterable[Event], seed: int, percent: int = 5) -> Iterator[Event]:
    """The events, and after some of them what changes or withdraws an earlier bid or auction.

    Args:
        events: in order.
        seed: decides, with the key, which ones, when, and how.
        percent: of the bids, and of the auctions. Half of these are changed, half withdrawn. Amendments that would
            come after the last event come right behind it.
    """
    due: defaultdict[int, list[Event]] = defaultdict(list)
    for count, event in enumerate(events):
        yield event
        draws = Draws(seed, event.key * 2 + (event.kind == "auction"))
        if event.kind != "person" and draws.below(100) < percent:
            due[count + 1 + draws.below(_LONGEST_DELAY)].append(_amendment(event, draws))
        yield from due.pop(count, ())
    for late in sorted(due):
        yield from due[late]


def _amendment(event: Event, draws: Draws) -> Event:
    assert event.row is not None
    if draws.below(2):
        return Event(event.kind, event.key, None)
    changed = _changed_bid if event.kind == "bid" else _changed_auction
    return Event(event.kind, event.key, changed(event.row, draws))


def _changed_bid(row: dict[str, Any], draws: Draws) -> dict[str, Any]:
    """Another price, and for one bid of four another auction."""
    auction = max(row["auction"] - 1, FIRST_ID) if draws.below(4) == 0 else row["auction"]
    return {**row, "price": price(draws), "auction": auction}


def _changed_auction(row: dict[str, Any], draws: Draws) -> dict[str, Any]:
    """Closed earlier or later, and in any category."""
    length = (row["expires"] - row["date_time"]) / timedelta(milliseconds=1)
    expires = row["date_time"] + timedelta(milliseconds=1 + int(length * 2 * draws.fraction()))
    return {**row, "expires": expires, "category": FIRST_CATEGORY + draws.below(CATEGORIES)}
