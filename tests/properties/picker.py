"""Where randomness comes from: everything random is made of integers, drawn by hypothesis or from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Picker:
    """Picks made of integers between two bounds; smaller integers make simpler things.

    Args:
        integer: gives one between the bounds, both included.
    """

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self.count = integer

    @classmethod
    def drawn(cls, draw: st.DrawFn) -> Picker:
        """Drawn by hypothesis, which finds a smaller example when one fails."""
        return cls(lambda low, high: draw(st.integers(low, high)))

    @classmethod
    def seeded(cls, seed: int) -> Picker:
        """The same each time for one seed."""
        return cls(random.Random(seed).randint)

    def one(self, items: Sequence[T]) -> T:
        return items[self.count(0, len(items) - 1)] if len(items) > 1 else items[0]

    def chance(self, percent: int) -> bool:
        """True that often."""
        return self.count(0, 99) >= 100 - percent

    def some(self, items: Sequence[T], low: int, high: int) -> list[T]:
        """Between `low` and `high` of the items, in a random order, none twice."""
        left, chosen = list(items), []
        for _ in range(min(self.count(low, high), len(left))):
            chosen.append(left.pop(self.count(0, len(left) - 1)))
        return chosen
