"""The writer's lease: one holder at a time, a token that grows, and a holder that knows when it is no longer one.

Leases that must not be lost are good for minutes and renewed many times a second, so that a machine that stands still
loses none of them; those that shall be lost are good for less than a second.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from strandline.state_store import lock as lease_module
from strandline.state_store.errors import Action, CorruptState, LockLost, StorageUnavailable, WriterBusy
from strandline.state_store.lock import LeaseRecord, WriterLease, lease, read_lease
from strandline.state_store.paths import Location
from strandline.state_store.storage_disk import DiskStorage
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.state_store.storage.places import Place

LONG = 240.0

_HOLD = """
from strandline.state_store import lock as module
from strandline.state_store.lock import lease

module._RENEWALS = 2400
with lease(place().location("tickets.lock"), "a test's child", float(sys.argv[2])) as held:
    say(held.token)
    sys.stdin.readline()
    held.check()
    say("still held")
"""


def _holder(place: Place, seconds: float) -> subprocess.Popen[str]:
    child = place.child(_HOLD, str(seconds))
    assert child.stdout is not None
    assert child.stdout.readline() == "1\n"
    return child


def _record(location: Location) -> LeaseRecord:
    found = read_lease(location)
    assert found is not None
    return found[0]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long lease is renewed, asked for again, and looked at by who waits for it, every tenth of a second."""
    for name in ("_RENEWALS", "_RETRIES", "_LOOKS"):
        monkeypatch.setattr(lease_module, name, 10 * LONG)


def _lost(held: WriterLease) -> LockLost:
    """The error of a lease that is lost."""
    errors: list[LockLost] = []

    def noticed() -> bool:
        try:
            held.check()
        except LockLost as error:
            errors.append(error)
        return bool(errors)

    wait_until(noticed, "the loss was not noticed")
    return errors[0]


@contextmanager
def _after_the_dead(location: Location) -> Iterator[WriterLease]:
    """The lease, after a holder that does nothing any more. A renewal that was on its way is a last sign of life."""
    while True:
        try:
            with lease(location, "the next", LONG) as held:
                yield held
            return
        except WriterBusy:
            continue


def test_the_token_grows_with_each_holder(place: Place) -> None:
    location = place.location("tickets.lock")
    for token in (1, 2, 3):
        with lease(location, f"holder {token}") as held:
            held.check()
            record = _record(location)
            assert (held.token, record.token, record.owner, record.pid) == (
                token,
                token,
                f"holder {token}",
                os.getpid(),
            )
            assert record.host == socket.gethostname()
        assert _record(location).is_free
        with pytest.raises(LockLost, match="it was released"):
            held.check()


@pytest.mark.usefixtures("often")
def test_a_second_writer_is_told_who_holds_it(place: Place) -> None:
    """By the first renewal that it sees, long before the lease would be over."""
    child = _holder(place, LONG)
    try:
        with pytest.raises(WriterBusy) as error, lease(place.location("tickets.lock"), "me", LONG):
            pytest.fail("two writers hold the lease")
        assert f"'tickets' is being written by process {child.pid} on {socket.gethostname()}" in str(error.value)
        assert error.value.action is Action.RETRY
        said, _ = child.communicate("go\n", timeout=PATIENCE_SECONDS)
        assert said == "still held\n"
    finally:
        child.kill()
        child.wait()
    with lease(place.location("tickets.lock"), "next") as held:
        assert held.token == 2


@pytest.mark.kill
@pytest.mark.usefixtures("often")
def test_a_killed_holder_is_followed_by_one_of_those_that_wait_and_not_before_its_time(place: Place) -> None:
    child = _holder(place, 0.7)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    begin = time.monotonic()
    refused = Event()

    def take(_: int) -> tuple[int, float] | None:
        try:
            with lease(place.location("tickets.lock"), "the next", LONG) as held:
                waited = time.monotonic() - begin
                assert refused.wait(PATIENCE_SECONDS)
                return held.token, waited
        except WriterBusy:
            refused.set()
            return None

    with ThreadPoolExecutor(2) as pool:
        (winner,) = [taken for taken in pool.map(take, range(2)) if taken is not None]
    assert winner[0] == 2
    assert winner[1] >= 0.7


@pytest.mark.kill
def test_a_holder_that_was_stopped_too_long_knows_that_it_lost(place: Place) -> None:
    child = _holder(place, 0.6)
    os.kill(child.pid, signal.SIGSTOP)
    try:
        with _after_the_dead(place.location("tickets.lock")) as held:
            os.kill(child.pid, signal.SIGCONT)
            assert child.communicate("go\n", timeout=PATIENCE_SECONDS)[0] == ""
            assert child.returncode != 0
            held.check()
            assert held.token == 2
    finally:
        child.kill()
        child.wait()
    assert _record(place.location("tickets.lock")).token == 2


@pytest.mark.usefixtures("often")
def test_each_renewal_begins_its_time_anew(tmp_path: Path) -> None:
    location = Location(DiskStorage(tmp_path), "tickets.lock")
    with lease(location, "me", LONG) as held:
        first = held._deadline
        wait_until(lambda: _record(location).renewals >= 2, "it is not renewed")
        wait_until(lambda: held._deadline > first + 0.1, "the renewals prolong nothing")
        held.check()


@pytest.mark.usefixtures("often")
def test_a_lease_that_another_took_is_lost(place: Place) -> None:
    location = place.location("tickets.lock")
    with lease(location, "me", LONG) as held:
        location.replace(LeaseRecord.of_this_process("the other", 7, 30).to_bytes())
        error = _lost(held)
        assert (error.code, error.action) == ("store.lock_lost", Action.RETRY)
        assert "(the other) has it" in error.message
    assert _record(location).owner == "the other", "it is not freed by who lost it"


@pytest.mark.usefixtures("often")
def test_a_lease_whose_object_was_removed_is_lost(tmp_path: Path) -> None:
    location = Location(DiskStorage(tmp_path), "tickets.lock")
    with lease(location, "me", LONG) as held:
        location.delete()
        assert "removed" in _lost(held).message
    assert not location.exists()


class _Failing(DiskStorage):
    """A disk that can fail: `before` does nothing, `after` does the work and loses the answer."""

    fails: str | None = None
    updates = 0

    def update(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        self.updates += 1
        if self.fails == "before":
            raise StorageUnavailable("away")
        etag = super().update(key, data, expected_etag)
        if self.fails == "after":
            raise StorageUnavailable("away")
        return etag


def test_renewals_that_fail_until_the_deadline_lose_it(tmp_path: Path) -> None:
    storage = _Failing(tmp_path)
    location = Location(storage, "tickets.lock")
    with lease(location, "me", 0.6) as held:
        storage.fails = "before"
        assert "could not be renewed in time" in _lost(held).message
        storage.fails = None
        time.sleep(0.1)
        with pytest.raises(LockLost):
            held.check()
    assert _record(location).is_free


@pytest.mark.usefixtures("often")
def test_a_storage_that_fails_for_a_moment_loses_nothing(tmp_path: Path) -> None:
    """A renewal whose answer was lost has changed the etag, and is this holder's own."""
    storage = _Failing(tmp_path)
    with lease(Location(storage, "tickets.lock"), "me", LONG) as held:
        for fails in ("before", None, "after", None):
            # One update more than this may have begun before.
            storage.fails, storage.updates = fails, 0
            wait_until(lambda: storage.updates > 2, f"it is not renewed: {fails}")
            held.check()
        assert _record(Location(storage, "tickets.lock")).renewals >= 3


def test_an_object_that_is_no_lease_is_not_taken(place: Place) -> None:
    for content in (b"not json", b"[]", json.dumps({"holder": "x"}).encode()):
        place.location("tickets.lock").replace(content)
        with pytest.raises(CorruptState), lease(place.location("tickets.lock"), "me"):
            pytest.fail("it was taken")


def test_an_error_inside_releases_it(place: Place) -> None:
    location = place.location("tickets.lock")
    with pytest.raises(RuntimeError, match="boom"), lease(location, "me"):
        raise RuntimeError("boom")
    assert _record(location).is_free
