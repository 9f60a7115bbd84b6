"""What every kind of storage promises, verb by verb."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from strandline.state_store.errors import KeyRefused, ObjectMissing
from strandline.state_store.storage_verbs import Storage


def _fill(storage: Storage, *keys: str) -> None:
    for key in keys:
        storage.make_folder(key.rpartition("/")[0])
        assert storage.create(key, key.encode())


@pytest.mark.parametrize("data", [b"", b"one", bytes(range(256)) * 40_000], ids=["empty", "small", "10 MB"])
def test_what_was_written_is_read(storage: Storage, data: bytes) -> None:
    assert storage.create("created", data)
    storage.replace("replaced", data)
    for key in ("created", "replaced"):
        assert storage.get(key) == data
        assert storage.size(key) == len(data)
        assert storage.exists(key)


def test_create_leaves_what_is_there(storage: Storage) -> None:
    assert storage.create("a", b"first")
    assert not storage.create("a", b"second")
    assert not storage.create("a", b"first")
    assert storage.get("a") == b"first"


def test_replace_replaces(storage: Storage) -> None:
    storage.replace("a", b"first")
    storage.replace("a", b"2")
    assert storage.get("a") == b"2"


def test_what_is_not_there_is_missed_alike(storage: Storage) -> None:
    _fill(storage, "folder/inside")
    for key in ("nothing", "folder", "folder/nothing", "nowhere/nothing", "folder/inside/below"):
        assert not storage.exists(key)
        for read in (storage.get, storage.size, storage.get_with_etag, lambda key: storage.get_range(key, 0, 0)):
            with pytest.raises(ObjectMissing) as error:
                read(key)
            assert error.value.code == "store.object_missing"
            assert isinstance(error.value, FileNotFoundError)
            assert key in (error.value.where or "")


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 10, b"0123456789"), (3, 4, b"3456"), (8, 5, b"89"), (10, 1, b""), (50, 5, b""), (3, 0, b""), (0, 1, b"0")],
)
def test_a_range_ends_with_the_object(storage: Storage, start: int, length: int, expected: bytes) -> None:
    storage.replace("digits", b"0123456789")
    assert storage.get_range("digits", start, length) == expected


def test_delete_is_idempotent(storage: Storage) -> None:
    _fill(storage, "folder/a")
    for key in ("folder/a", "folder/a", "nowhere/a"):
        storage.delete(key)
    assert not storage.exists("folder/a")
    assert storage.create("folder/a", b"again")


def test_update_compares_and_swaps(storage: Storage) -> None:
    first = storage.update("a", b"first", None)
    assert first is not None
    assert storage.update("a", b"another", None) is None
    assert storage.get_with_etag("a") == (b"first", first)
    second = storage.update("a", b"second", first)
    assert second not in (None, first)
    assert storage.update("a", b"third", first) is None
    assert storage.get_with_etag("a") == (b"second", second)


def test_update_of_what_was_removed_or_replaced_writes_nothing(storage: Storage) -> None:
    etag = storage.update("a", b"first", None)
    storage.replace("a", b"replaced")
    assert storage.update("a", b"second", etag) is None
    storage.delete("a")
    assert storage.update("a", b"second", etag) is None
    assert storage.update("nowhere/a", b"second", etag) is None
    assert not storage.exists("a")


_LOG = [f"t/_delta_log/{version:020d}.json" for version in range(4)]
_INNER = ["t/_delta_log/_sidecars/one.parquet", "t/_delta_log/_sidecars/two.parquet"]
_LAST = "t/_delta_log/zz"


def test_a_folder_is_listed_in_order_without_what_is_deeper(storage: Storage) -> None:
    _fill(storage, *reversed(_LOG), *_INNER, _LAST, "t/part-0", "t2/_delta_log/x", "t/_delta_log2/x")
    assert list(storage.list("t/_delta_log")) == [*_LOG, _LAST]
    assert list(storage.list("t/_delta_log/")) == [*_LOG, _LAST]
    assert list(storage.list("t/_delta_log", _LOG[1])) == [*_LOG[2:], _LAST]
    assert list(storage.list("t/_delta_log", "t/_delta_log/00000000000000000001")) == [*_LOG[1:], _LAST]
    assert list(storage.list("t/_delta_log", _LAST)) == []
    assert list(storage.list("t/_delta_log", _LOG[2], recursive=True)) == [_LOG[3], *_INNER, _LAST]
    assert list(storage.list("t/_delta_log", _INNER[0], recursive=True)) == [_INNER[1], _LAST]
    assert list(storage.list("nothing")) == []
    assert list(storage.list(_LOG[0])) == []
    assert list(storage.folders("t")) == ["t/_delta_log", "t/_delta_log2"]
    assert list(storage.folders("nothing")) == []


def test_the_whole_root_is_listed_in_the_order_of_bytes(storage: Storage) -> None:
    """A disk walks folder by folder: `a.json` comes before what is in `a`, and `a0` after it."""
    everything = ["Z", "a-/x", "a.json", "a/x", "a/y/z", "a0", "b/c.d", "b/c/d", "b/c/é", "b/c0", "é", "😀"]
    assert everything == sorted(everything, key=str.encode)
    _fill(storage, *reversed(everything))
    assert list(storage.list("", recursive=True)) == everything
    for after in everything:
        expected = everything[everything.index(after) + 1 :]
        assert list(storage.list("", after, recursive=True)) == expected
    assert list(storage.list("")) == ["Z", "a.json", "a0", "é", "😀"]
    assert list(storage.list("", "a")) == ["a.json", "a0", "é", "😀"]
    assert list(storage.folders("")) == ["a", "a-", "b"]


@pytest.mark.parametrize("key", ["per%2Ecent", "a b", "a+b", "h#x", "q?x", "ünï", "a=b", "~x", "[x]"])
def test_a_key_is_taken_as_it_is(storage: Storage, key: str) -> None:
    _fill(storage, f"folder/{key}", f"{key}/inner")
    assert list(storage.list("folder")) == [f"folder/{key}"]
    assert storage.get(f"{key}/inner") == f"{key}/inner".encode()
    assert storage.url(key).endswith(f"/{key}")


_WRONG = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    ".a",
    "a/.b",
    "a\\b",
    "a\nb",
    "a\0",
    "é" * 110,
]


@pytest.mark.parametrize("key", [*_WRONG, "/".join(["k" * 200] * 5)])
def test_a_key_that_is_not_the_same_everywhere_is_refused(storage: Storage, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.get(key),
        lambda: storage.get_range(key, 0, 1),
        lambda: storage.get_with_etag(key),
        lambda: storage.size(key),
        lambda: storage.exists(key),
        lambda: storage.create(key, b""),
        lambda: storage.replace(key, b""),
        lambda: storage.update(key, b"", None),
        lambda: storage.delete(key),
    ]
    if key not in ("", "a/"):  # the root, and a folder
        calls += [
            lambda: list(storage.list(key)),
            lambda: list(storage.folders(key)),
            lambda: storage.make_folder(key),
            lambda: storage.url(key),
            lambda: storage.local_path(key),
        ]
    for call in calls:
        with pytest.raises(KeyRefused):
            call()


def test_a_storage_goes_to_another_process_and_is_still_the_same(storage: Storage) -> None:
    storage.replace("a", b"1")
    other = pickle.loads(pickle.dumps(storage))
    assert other == storage
    assert hash(other) == hash(storage)
    assert other.get("a") == b"1"
