"""Whatever is read, changed and evicted in between: a partial view's rows are those of the view stored in full."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import TOMBSTONE
from tests.support.examples import examples
from tests.unit.partial.shop import QUERIES, full_rows, opened, shop

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.jobs.partial.view import PartialView
    from tests.support.served_lake import ServedLake

PRODUCTS = ("a", "b", "c")
CATEGORIES = ("x", "y", None)
LENGTHS = (1, 2, 3)
KEYS: dict[str, list[tuple[Any, ...]]] = {
    name: [(each,) for each in (*PRODUCTS, *CATEGORIES, "absent")] for name in QUERIES if name != "two_keys"
} | {"two_keys": [(category, length) for category in CATEGORIES for length in (*LENGTHS, None)]}
FIRST = [("visits", {"id": 1, "product": "a", "length": 1}), ("info", {"product": "a", "category": "x", "price": 1})]
"""A view is stored once all of its inputs are there."""
TIGHT_BYTES = 900
"""Room for two or three keys, so that reads evict each other's."""

visits = st.builds(
    lambda product, length: ("visits", {"id": 1, "product": product, "length": length}),
    st.sampled_from((*PRODUCTS, None)),
    st.sampled_from(LENGTHS),
)
infos = st.builds(
    lambda product, category, price: ("info", {"product": product, "category": category, "price": price}),
    st.sampled_from(PRODUCTS),
    st.sampled_from(CATEGORIES),
    st.integers(1, 3),
)
gone = st.builds(lambda product: ("info", {"product": product, TOMBSTONE: True}), st.sampled_from(PRODUCTS))
epochs = st.lists(st.lists(visits | infos | gone, min_size=1, max_size=4), min_size=2, max_size=4)


@pytest.mark.parametrize("name", QUERIES)
# Each step of shrinking would take a lake, and all of them minutes.
@settings(max_examples=examples(2), deadline=None, phases=[Phase.generate])
@given(history=epochs, data=st.data())
def test_the_rows_of_keys_are_those_of_the_stored_view(
    tmp_path_factory: pytest.TempPathFactory, name: str, history: list[list[tuple[str, Any]]], data: st.DataObject
) -> None:
    served = shop(Settings(lake=_folder(tmp_path_factory)), name)
    roomy, tight = opened(served, name), opened(served, name, TIGHT_BYTES)
    with served.duckdb_engine() as duckdb_engine:
        for events in (FIRST, *history):
            for source in ("visits", "info"):
                rows = [row for each, row in events if each == source]
                if rows:
                    served.append(source, rows)
            served.refresh(duckdb_engine)
            for view in (roomy, tight):
                view.advance()
                asked = data.draw(st.lists(st.sampled_from(KEYS[name]), min_size=1, max_size=5))
                assert_equal_to_full(served, name, view, asked)
    # What the roomy cache has kept all along, and was told of by changes alone.
    assert_equal_to_full(served, name, roomy, KEYS[name])
    assert tight.counts.bytes <= TIGHT_BYTES


def assert_equal_to_full(served: ServedLake, name: str, view: PartialView, keys: list[tuple[Any, ...]]) -> None:
    found = view.read(keys).rows
    stored = full_rows(served, name)
    for key, rows in zip(keys, found, strict=True):
        wanted = [row for row in stored if tuple(row[column] for column in view.plan.key) == key]
        assert Counter(map(str, rows)) == Counter(map(str, wanted)), key


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("partial") / "lake"
