"""The kept keys: their order of going, their bytes, and what drops them."""

from __future__ import annotations

from random import Random

from strandline.jobs.partial.pull import Key
from strandline.jobs.partial.view import KeyCache


def one_entry(rows: list[bytes]) -> int:
    """The bytes that a cache says of one key of one letter."""
    cache = KeyCache(1 << 20)
    cache.put(("a",), rows)
    return cache.bytes


def test_rows_come_back_as_they_were() -> None:
    cache = KeyCache(1 << 20)
    rows = {("none",): [], ("empty",): [b""], ("two",): [b"\x00\xff", b"second"]}
    for key, each in rows.items():
        cache.put(key, each)
    assert {key: cache.get(key) for key in rows} == rows
    assert cache.get(("absent",)) is None


def test_the_least_recently_read_key_makes_room() -> None:
    cache = KeyCache(2 * one_entry([b"row"]))
    for key in "ab":
        cache.put((key,), [b"row"])
    cache.get(("a",))
    cache.put(("c",), [b"row"])
    assert [cache.get((key,)) for key in "abc"] == [[b"row"], None, [b"row"]]
    assert cache.evictions == 1


def test_a_key_above_the_budget_is_not_kept() -> None:
    cache = KeyCache(one_entry([b"row"]))
    cache.put(("a",), [b"r" * 1000])
    assert (len(cache), cache.bytes) == (0, 0)


def test_a_key_above_the_budget_lets_no_other_go() -> None:
    cache = KeyCache(one_entry([b"row"]))
    cache.put(("a",), [b"row"])
    cache.put(("b",), [b"r" * 1000])
    assert cache.get(("a",)) == [b"row"]
    assert (len(cache), cache.evictions) == (1, 0)


def test_a_key_that_is_named_twice_is_dropped_once() -> None:
    cache = KeyCache(1 << 20)
    cache.put(("a",), [b"row"])
    assert cache.drop([("a",), ("a",), ("absent",)]) == 1
    assert (len(cache), cache.bytes) == (0, 0)


def test_the_bytes_are_those_of_what_is_kept_after_any_history() -> None:
    chance, cache = Random(1), KeyCache(5_000)
    for _ in range(2_000):
        key: Key = (chance.randrange(40),)
        match chance.randrange(4):
            case 0 | 1:
                cache.put(key, [bytes(chance.randrange(300))] * chance.randrange(3))
            case 2:
                cache.get(key)
            case _:
                cache.drop([key])
        assert 0 <= cache.bytes <= 5_000
    cache.drop_where(lambda _: True)
    assert (len(cache), cache.bytes) == (0, 0)
