"""Many writers at once: one creates, and of those that update nobody's work is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from strandline.state_store.storage_verbs import Storage
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.state_store.storage.places import Place

_CREATE_AND_COUNT = """
storage = place().open()
say("ready")
sys.stdin.readline()
won = [n for n in range(8) if storage.create(f"log/{n:04d}", sys.argv[2].encode())]
for _ in range(4):
    etag = None
    while etag is None:
        data, seen = storage.get_with_etag("counter")
        etag = storage.update("counter", b"%d" % (int(data) + 1), seen)
say(json.dumps(won))
"""

_WRITE_ON = """
storage = place().open()
etag = storage.update("number", b"0", None)
say("ready")
for number in range(1, 1_000_000):
    storage.replace("text", b"%d" % number * 1000)
    etag = storage.update("number", b"%d" % number, etag)
"""


def _together(place: Place, script: str, writers: int) -> list[str]:
    """Start as many processes, let them go at once, and wait for what they say."""
    children = [place.child(script, str(number)) for number in range(writers)]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        said = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            assert child.stdout is not None
            said.append(child.stdout.readline())
            assert child.wait(PATIENCE_SECONDS) == 0
        return said
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_one_of_many_threads_creates(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(2):
            got = list(pool.map(lambda n, key=f"key-{round_}": storage.create(key, b"%d" % n), range(24)))
            assert sum(got) == 1
            assert storage.get(f"key-{round_}") == b"%d" % got.index(True)


def test_threads_that_update_lose_nothing(storage: Storage) -> None:
    storage.replace("counter", b"0")

    def add(_: int) -> None:
        etag = None
        while etag is None:
            data, seen = storage.get_with_etag("counter")
            etag = storage.update("counter", b"%d" % (int(data) + 1), seen)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    assert storage.get("counter") == b"12"


def test_among_processes_one_creates_and_no_update_is_lost(place: Place) -> None:
    storage = place.open()
    storage.make_folder("log")
    storage.replace("counter", b"0")
    won = [json.loads(line) for line in _together(place, _CREATE_AND_COUNT, 3)]
    assert sorted(number for each in won for number in each) == list(range(8))
    for writer, numbers in enumerate(won):
        for number in numbers:
            assert storage.get(f"log/{number:04d}") == b"%d" % writer
    assert storage.get("counter") == b"12"


@pytest.mark.kill
def test_a_writer_that_is_killed_leaves_whole_objects_and_no_lock(place: Place) -> None:
    child = place.child(_WRITE_ON)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    storage = place.open()
    number, etag = storage.get_with_etag("number")
    assert storage.get("text") in (number * 1000, b"%d" % (int(number) + 1) * 1000)
    assert storage.update("number", b"-1", etag)
    assert list(storage.list("")) == ["number", "text"]
