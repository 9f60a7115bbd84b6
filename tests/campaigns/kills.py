"""A writer killed again and again, and what must hold after each kill.

    python -m tests.campaigns.kills [--seed 1] [--kills 300] [--s3]

Each kill is a real SIGKILL of a real process: at every named failpoint of the commit path in turn, and between them at
moments drawn log-uniformly from 1 to 300 ms. The next writer goes on where the lake says. A fresh lake is begun every
so many kills, so that its whole history can be checked at its end. With `--s3` the lake is on moto's S3.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from strandline.state_store.delta import log
from strandline.state_store.paths import LakePath, Location
from tests.support.killed_writer import started
from tests.support.lakes import s3_folder
from tests.support.s3_server import S3Server
from tests.support.two_tables import TwoTables
from tests.support.two_tables_hold import assert_hold, orphans, told_in

FAILPOINTS = (
    *("after-table-folder", "after-staging", "after-data-flush", "after-vectors", "before-log-entry", "before-link"),
    *("after-link", "after-log-entry", "before-checkpoint", "before-hint", "before-rename", "after-checkpoint"),
)
SELDOM = {"after-table-folder", "before-checkpoint", "before-hint", "before-rename", "after-checkpoint"}
RANDOM = "random"
KILLS_PER_LAKE = 2 * len(FAILPOINTS)
EVENTS = 7
# More than it takes to come to any failpoint, checkpoints included.
EPOCHS = 12
ENDLESS = 1_000_000
SHORTEST_SECONDS, LONGEST_SECONDS = 0.001, 0.3


@dataclass
class Result:
    """The outcome of a campaign.

    Attributes:
        kills: {failpoint or `random`: processes killed there}.
        versions: commits of both tables in all lakes.
        reported: of those, commits that were reported done.
        orphans: files left behind that no commit names.
    """

    kills: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    reported: int = 0
    rows: int = 0
    orphans: int = 0

    def text(self) -> str:
        named = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({named}); {self.versions} versions, {self.reported} of them reported done, "
            f"{self.rows} events; lost 0, doubled 0; {self.orphans} files that no commit names"
        )


@dataclass(frozen=True)
class Place:
    """A lake, and where on this disk its writers note what they were told."""

    root: LakePath
    notes: Path

    @property
    def told(self) -> Path:
        return self.notes / "told"


def campaign(folder: Path, seed: int, kills: list[str], s3: S3Server | None = None) -> Result:
    """Kill writers; raises AssertionError, or an error of the store, at the first thing that does not hold.

    Args:
        s3: where the lakes are; default: in `folder`.
        kills: the failpoint of each kill, or `random`.
    """
    draw = random.Random(seed)
    result = Result()
    for begin in range(0, len(kills), KILLS_PER_LAKE):
        notes = folder / f"lake-{begin}"
        notes.mkdir()
        lake = Place(notes / "root" if s3 is None else s3_folder(s3), notes)
        for each in kills[begin : begin + KILLS_PER_LAKE]:
            _kill(lake, each, draw, result)
        _tally(lake, result)
    return result


def _kill(lake: Place, failpoint: str, draw: random.Random, result: Result) -> None:
    hit = f"{failpoint}:{_pass(failpoint, draw)}"
    # One that is killed at random must not have come to its end before, however late the kill comes.
    epochs = ENDLESS if failpoint == RANDOM else EPOCHS
    process = started(lake.notes, EVENTS, epochs, hit, lake.root)
    if failpoint == RANDOM:
        time.sleep(SHORTEST_SECONDS * (LONGEST_SECONDS / SHORTEST_SECONDS) ** draw.random())
        process.kill()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, f"the writer ended with {process.exitcode} ({hit})"
    result.kills[failpoint] += 1
    lock = TwoTables(lake.root).lake.lock("two")
    if isinstance(lock, Location):
        # The lease of a dead writer is waited for; test_lease and the drops of test_object_store do that.
        lock.delete()
    assert_hold(TwoTables(lake.root), told_in(lake.told))


def _pass(failpoint: str, draw: random.Random) -> int:
    """The pass to die at: what happens at checkpoints, and to a new table, is passed once or twice, the rest often."""
    return draw.randrange(1, 3 if failpoint in SELDOM else 6)


def _tally(lake: Place, result: Result) -> None:
    tables = TwoTables(lake.root)
    told = told_in(lake.told)
    result.rows += assert_hold(tables, told, every_version=True).get("events", 0)
    result.reported += sum(len(versions) for versions in told.values())
    for table in (tables.events, tables.latest):
        result.versions += (log.newest_version(table.path) or 0) + 1
        result.orphans += len(orphans(table))


def main() -> None:
    """Run the campaign, print what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--s3", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = S3Server() if asked.s3 else None
        if server is not None:
            stack.callback(server.stop)
        both = [kill for name in FAILPOINTS for kill in (name, RANDOM)]
        result = campaign(Path(folder), asked.seed, [both[number % len(both)] for number in range(asked.kills)], server)
    print(f"seed {asked.seed}: {result.text()}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
