"""Functions as a user writes them, for the tests of CREATE FUNCTION."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

NOT_CALLABLE = 1


def spread(low: int | None, high: int | None) -> float | None:
    """Half the distance; None over None."""
    return None if low is None or high is None else (high - low) / 2


def initials(name: str | None) -> str:
    """The first letters; it is called for NULL as well."""
    return "".join(part[0] for part in (name or "?").split())


def turned(given: dict[str, list[Decimal]] | None) -> dict[str, list[Decimal]] | None:
    """The same map with its lists backwards."""
    return None if given is None else {key: values[::-1] for key, values in given.items()}


def fails(value: int) -> int:
    """One over it."""
    return 1 // value


def lies(value: int) -> str:
    """No number."""
    return f"about {value}"


class Longest:
    """The longest text, and of those the first in the alphabet: it cannot take texts back."""

    def init(self) -> str | None:
        return None

    def update(self, state: str | None, text: str | None) -> str | None:
        return self.merge(state, text)

    def merge(self, a: str | None, b: str | None) -> str | None:
        return min((text for text in (a, b) if text is not None), key=lambda text: (-len(text), text), default=None)

    def finish(self, state: str | None) -> str | None:
        return state


class WeightedSum:
    """Σ value × weight, and how many there are; it takes values back."""

    def init(self) -> dict[str, int]:
        return {"n": 0, "sum": 0}

    def update(self, state: dict[str, int], value: int | None, weight: int | None) -> dict[str, int]:
        return self._add(state, value, weight, 1)

    def retract(self, state: dict[str, int], value: int | None, weight: int | None) -> dict[str, int]:
        return self._add(state, value, weight, -1)

    def merge(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {"n": a["n"] + b["n"], "sum": a["sum"] + b["sum"]}

    def finish(self, state: dict[str, Any]) -> int | None:
        return state["sum"] if state["n"] else None

    def _add(self, state: dict[str, int], value: int | None, weight: int | None, sign: int) -> dict[str, int]:
        if value is None or weight is None:
            return state
        return {"n": state["n"] + sign, "sum": state["sum"] + sign * value * weight}


class Unfinished:
    """No aggregate yet."""

    def init(self) -> int:
        return 0

    def update(self, state: int, _value: int) -> int:
        return state + 1
