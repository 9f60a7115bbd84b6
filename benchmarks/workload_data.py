"""The two workloads: what comes in each epoch, and what must come out.

W1   5,000,000 events, 100,000 keys: COUNT and SUM per key, after every 500,000 events
W2   MAX over a join with retractions: in each of forty epochs 100,000 visits come, 10,000 go, and the two longest
     products of each of 100 categories go, so that every maximum is lost
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STEADY = 7
"""Epochs at the end that are counted as steady: the first ones pay for cold caches."""

W1_EPOCHS = 10

W1_TABLES = "CREATE STREAM events (key BIGINT, value BIGINT) WITH (KAFKA_TOPIC='events', PARTITIONS=1);"
W1_VIEW = "CREATE MATERIALIZED VIEW w1 AS SELECT key, COUNT(*) AS n, SUM(value) AS total FROM events GROUP BY key;"
W2_TABLES = """
CREATE TABLE info (product BIGINT PRIMARY KEY, category BIGINT, length BIGINT) WITH (KAFKA_TOPIC='info', PARTITIONS=1);
CREATE TABLE visit (id BIGINT PRIMARY KEY, product BIGINT) WITH (KAFKA_TOPIC='visit', PARTITIONS=1);
"""
W2_VIEW = """
CREATE MATERIALIZED VIEW w2 AS SELECT category, MAX(length) AS longest
  FROM info JOIN visit ON info.product = visit.product GROUP BY category;
"""
W2_ANSWERS = (
    *(98600660, 97551052, 96625648, 95638152, 94510486),
    *(93482851, 92388839, 91446826, 90499523, 89598530),
    *(88652763, 87549692, 86465024, 85326940, 84242812),
    *(83324244, 82438846, 81276650, 80464475, 79474667),
    *(78560295, 77579804, 76671175, 75694967, 74661906),
    *(73619606, 72659562, 71683753, 70681379, 69849723),
    *(68943459, 67889446, 66942581, 65960943, 65003365),
    *(64062310, 62975137, 61991063, 61041354, 60088832),
)

Changes = dict[str, pa.Table]
"""{source: its events, with `_tombstone` where rows go}."""


@dataclass(frozen=True)
class Workload:
    """A workload.

    Attributes:
        epochs: the changes of each epoch.
        length: how many there are.
        check: raises AssertionError unless the view's rows are right after that epoch.
    """

    name: str
    statements: str
    view: str
    epochs: Callable[[], Iterator[Changes]]
    length: int
    check: Callable[[pa.Table, int], None]


@dataclass
class Measured:
    """The events and seconds of each epoch, and the processor's seconds in all; 0: nobody has counted them yet."""

    events: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    processor: float = 0.0

    def rate(self, last: int) -> float:
        """Events a second over the last epochs."""
        return sum(self.events[-last:]) / sum(self.seconds[-last:])


def w1_epochs() -> Iterator[Changes]:
    """Ten times 500,000 events."""
    chance = np.random.default_rng(42)
    keys, values = chance.integers(0, 100_000, 5_000_000), chance.integers(0, 1000, 5_000_000)
    for first in range(0, 5_000_000, 5_000_000 // W1_EPOCHS):
        part = slice(first, first + 500_000)
        yield {"events": pa.table({"key": keys[part], "value": values[part]})}


def w1_check(rows: pa.Table, epoch: int) -> None:
    if epoch == W1_EPOCHS:
        assert (rows.num_rows, pc.sum(rows["n"]).as_py()) == (100_000, 5_000_000)
        assert pc.sum(rows["total"]).as_py() == 2_496_777_159


def w2_epochs() -> Iterator[Changes]:
    """Forty times 100,000 visits that come, 10,000 that go, and 200 products that go; all products before."""
    products, batch = 20_000, 100_000
    chance = np.random.default_rng(7)
    categories, lengths = chance.integers(0, 100, products), chance.integers(0, 1_000_000, products)
    there = np.ones(products, bool)
    visited, alive = np.empty(0, np.int64), np.empty(0, bool)
    longest = np.lexsort((-lengths, categories))
    info = pa.table({"product": np.arange(products), "category": categories, "length": lengths})
    for epoch in range(len(W2_ANSWERS)):
        new = chance.integers(0, products, batch)
        ids = np.arange(len(visited), len(visited) + batch)
        visited, alive = np.concatenate([visited, new]), np.concatenate([alive, np.ones(batch, bool)])
        gone = chance.choice(np.flatnonzero(alive), 10_000, replace=False)
        alive[gone] = False
        left = longest[there[longest]]
        place = np.arange(len(left)) - np.searchsorted(categories[left], categories[left])
        removed = left[place < 2]
        there[removed] = False
        came = pa.table({"id": ids, "product": new, "_tombstone": np.zeros(batch, bool)})
        went = pa.table({"id": gone, "product": visited[gone], "_tombstone": np.ones(len(gone), bool)})
        lost = info.take(removed).append_column("_tombstone", pa.array(np.ones(len(removed), bool)))
        first = info.append_column("_tombstone", pa.array(np.zeros(products, bool)))
        yield {"visit": pa.concat_tables([came, went]), "info": pa.concat_tables([first, lost]) if epoch == 0 else lost}


def w2_check(rows: pa.Table, epoch: int) -> None:
    assert pc.sum(rows["longest"]).as_py() == W2_ANSWERS[epoch - 1]


WORKLOADS = (
    Workload("W1", W1_TABLES + W1_VIEW, "w1", w1_epochs, W1_EPOCHS, w1_check),
    Workload("W2", W2_TABLES + W2_VIEW, "w2", w2_epochs, len(W2_ANSWERS), w2_check),
)
