"""One INSERT over several partitions is there whole or not at all, whenever its process is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.support.waiting import PATIENCE_SECONDS

PARTITIONS = 3

_PRODUCE = """
import sys
from itertools import count
from pathlib import Path
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.state_store.layout import LakeLayout

root, name, calls, partitions = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
log = LocalLog(LakeLayout(root))
for number in range(calls) if calls else count():
    log.produce("t", [Record(None, f"{name}:{number}".encode(), 1, partition=p) for p in range(partitions)])
    print(number, flush=True)
"""


@pytest.fixture
def log(lake: LakeLayout) -> LocalLog:
    made = LocalLog(lake)
    made.ensure_topic("t", PARTITIONS)
    return made


def _producer(lake: LakeLayout, name: str, calls: int, failpoint: str = "") -> subprocess.Popen[str]:
    """A process that appends a record to every partition, again and again (0 calls: until it is killed)."""
    command = [sys.executable, "-c", _PRODUCE, str(lake.root), name, str(calls), str(PARTITIONS)]
    environment = os.environ | {"STRANDLINE_FAILPOINT": failpoint}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _values(log: LocalLog, partition: int, end: int) -> list[str]:
    runs = list(log.read("t", partition, 0, end))
    assert [offset for run in runs for offset in run.offsets] == list(range(end))
    return [(value or b"").decode() for run in runs for value in run.values]


def _same_in_all(lake: LakeLayout) -> list[str]:
    """The values of partition 0, which must be those of each partition, in the same order."""
    log = LocalLog(lake)
    ends = log.end_offsets("t")
    assert len(set(ends.values())) == 1
    first, *others = (_values(log, partition, end) for partition, end in ends.items())
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("point", ["before-link", "after-segment"])
@pytest.mark.parametrize("call", [1, 3])
def test_a_kill_at_any_step_leaves_whole_calls(log: LocalLog, lake: LakeLayout, point: str, call: int) -> None:
    """The second pass of `before-link`, and so on, belongs to the second call."""
    killed = _producer(lake, "killed", 9, f"{point}:{call}")
    said, _ = killed.communicate(timeout=PATIENCE_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    assert len(said.split()) == call - 1, "what was acknowledged"
    there = call if point == "after-segment" else call - 1
    assert _same_in_all(lake) == [f"killed:{number}" for number in range(there)]
    # Nobody is held up by it, and nothing of it is taken for a record.
    places = log.produce("t", [Record(None, b"next", 1, partition=p) for p in range(PARTITIONS)])
    assert places == [(partition, there) for partition in range(PARTITIONS)]
    assert _same_in_all(lake)[-1] == "next"


def test_producers_killed_at_random_lose_nothing_that_they_acknowledged(log: LocalLog, lake: LakeLayout) -> None:
    """Three producers at once, each killed at a moment of its own, while a reader looks at all the partitions."""
    moments = random.Random(7)
    acknowledged: dict[str, int] = {}
    for round_number in range(2):
        running = {f"{round_number}-{one}": _producer(lake, f"{round_number}-{one}", 0) for one in range(3)}
        for name, process in running.items():
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            time.sleep(moments.uniform(0, 0.2))
            assert len(set(log.end_offsets("t").values())) == 1, f"a call of {name} is there in part"
            process.kill()
            # Read as the first line was: `communicate` would pass over what that read ahead.
            said = process.stdout.read()
            process.wait(PATIENCE_SECONDS)
            acknowledged[name] = int((["0", *said.split()])[-1])
    counted = Counter(_same_in_all(lake))
    assert max(counted.values()) == 1
    for name, last in acknowledged.items():
        mine = sorted(int(text.split(":")[1]) for text in counted if text.startswith(f"{name}:"))
        assert mine in (list(range(last + 1)), list(range(last + 2))), "a call that was not acknowledged may be there"


def test_racing_producers_are_seen_call_by_call(log: LocalLog, lake: LakeLayout) -> None:
    calls = 60
    running = [_producer(lake, str(name), calls) for name in range(4)]
    while any(process.poll() is None for process in running):
        assert len(set(log.end_offsets("t").values())) == 1
    assert [process.wait() for process in running] == [0] * 4
    for process in running:
        process.communicate()
    values = _same_in_all(lake)
    assert Counter(values) == Counter(f"{name}:{number}" for name in range(4) for number in range(calls))
    for name in range(4):
        mine = [text for text in values if text.startswith(f"{name}:")]
        assert mine == [f"{name}:{number}" for number in range(calls)]
    assert not list(on_disk(lake.topic("t")).glob(".*"))
