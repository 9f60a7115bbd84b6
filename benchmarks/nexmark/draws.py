"""Random numbers that are a function of their seed alone, on every platform and in every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_MASK = 2**64 - 1
# SplitMix64: the odd number nearest to 2^64 / golden ratio, and the two multipliers of its mixing function.
_STEP = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

T = TypeVar("T")


class Draws:
    """A row of draws for each (seed, number): events can be made in any order, or side by side.

    Args:
        seed: of the whole data set.
        number: of the event.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._state = _mixed(_mixed(seed & _MASK) ^ (number & _MASK))

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        self._state = (self._state + _STEP) & _MASK
        return _mixed(self._state) % bound

    def fraction(self) -> float:
        """A number from 0 up to, and without, 1."""
        # 53 bits are what a double holds.
        return self.below(2**53) / 2**53

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def text(self, length: int) -> str:
        """That many lower-case letters."""
        return "".join(_LETTERS[self.below(len(_LETTERS))] for _ in range(length))


def _mixed(value: int) -> int:
    value = (value + _STEP) & _MASK
    value = ((value ^ (value >> 30)) * _MIX[0]) & _MASK
    value = ((value ^ (value >> 27)) * _MIX[1]) & _MASK
    return value ^ (value >> 31)
