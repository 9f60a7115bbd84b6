"""A storm of updates while many read, with room for a few keys: each answer is right at its cut, bytes are bounded."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

from strandline.jobs.functions.python import Library
from strandline.jobs.model.settings import Settings
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.serve.query_engine import QueryDatabase
from strandline.jobs.serve.terms import QueryLimits
from strandline.state_store.delta import log
from tests.unit.partial.shop import plan_of, shop

if TYPE_CHECKING:
    from tests.support.served_lake import ServedLake

PRODUCTS = [f"p{number}" for number in range(8)]
BUDGET = 1_500
"""Room for some of the eight keys."""
EPOCHS = 12
LIMITS = QueryLimits(memory_bytes=64 << 20)

Said = list[tuple[int, str, int]]
"""(version of `visits`, key, its count)."""


def _read_until(view: PartialView, done: Event, seed: int) -> tuple[Said, int]:
    """What was read, and the most bytes that were kept."""
    chance, said, most = random.Random(seed), Said(), 0
    while not done.is_set():
        keys = [(f"c of {product}",) for product in chance.sample(PRODUCTS, 2)]
        found = view.read(keys)
        version = found.cut.versions["visits"]
        for (key,), rows in zip(keys, found.rows, strict=True):
            said.append((version, key, rows[0]["n"] if rows else 0))
        most = max(most, view.counts.bytes)
    return said, most


def _follow_until(view: PartialView, done: Event) -> None:
    while not done.is_set():
        view.advance()


def _storm(served: ServedLake) -> dict[int, Counter[str]]:
    """Epochs of visits, one after the other; what each version of their log counts."""
    chance, counts, total = random.Random(1), dict[int, Counter[str]](), Counter[str]()
    for _ in range(EPOCHS):
        visited = chance.choices(PRODUCTS, k=3)
        rows: list[dict[str, Any]] = [{"id": 1, "product": product, "length": 1} for product in visited]
        total += Counter(f"c of {product}" for product in visited)
        before = _newest(served)
        served.append("visits", rows)
        # More than one where small files were merged behind the events.
        counts |= dict.fromkeys(range(before + 1, _newest(served) + 1), total.copy())
    return counts


def _newest(served: ServedLake) -> int:
    found = log.newest_version(served.lake.table("visits"))
    assert found is not None
    return found


def test_answers_are_right_at_their_cut_and_bytes_stay_below_the_budget(settings: Settings) -> None:
    served = shop(settings, "joined")
    served.append("info", [{"product": each, "category": f"c of {each}", "price": 1} for each in PRODUCTS])
    served.append("visits", [{"id": 1, "product": "elsewhere", "length": 1}])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine, ["info"])
    plan, done = plan_of(served, "joined"), Event()
    first = _newest(served)
    with QueryDatabase(LIMITS.memory_bytes) as database, ThreadPoolExecutor(4) as threads:
        view = PartialView(plan, served.lake, Upqueries(plan, served.lake, Library((), ()), LIMITS, database), BUDGET)
        view.advance()
        following = threads.submit(_follow_until, view, done)
        reading = [threads.submit(_read_until, view, done, seed) for seed in range(3)]
        try:
            counts = {first: Counter[str](), **_storm(served)}
        finally:
            done.set()
        following.result()
        told = [each.result() for each in reading]
        # How often the readers came by is the machine's; that all keys do not fit is seen by reading each.
        for product in PRODUCTS:
            view.read([(f"c of {product}",)])
    for said, most in told:
        assert most <= BUDGET
        versions = [version for version, _, _ in said]
        assert versions == sorted(versions)
        assert [(version, key, counts[version][key]) for version, key, _ in said] == said
    assert len({version for said, _ in told for version, _, _ in said}) > 1
    assert view.counts.evictions
    assert view.counts.dropped
