"""The power cut at every moment of a history, and at every moment of histories in which a writer was killed as well.

    python -m tests.campaigns.power_cuts [--seed 1] [--epochs 3]

See `tests.support.power` for what a disk may hold then. With each history a writer is killed after it has given a name
and before it has flushed it: the next one builds on what only processes see. Then the histories of what is kept beside
tables (`tests.support.power_histories`).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.support.power_cuts import assert_survives, recorded
from tests.support.power_histories import HISTORIES, assert_each_disk


def main() -> None:
    """Cut, print what was tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    began, moments, disks = time.monotonic(), 0, 0
    # Two names for two new tables, two more for each epoch.
    histories = [None, *range(1, 2 * asked.epochs + 3)]
    with tempfile.TemporaryDirectory() as folder:
        for number, killed_at in enumerate(histories):
            root, work = Path(folder) / f"history-{number}", Path(folder) / f"disks-{number}"
            root.mkdir()
            work.mkdir()
            epochs = [draw.randrange(1, 9) for _ in range(asked.epochs)]
            cuts = assert_survives(recorded(root, epochs, killed_at), work, draw)
            moments, disks = moments + cuts.moments, disks + cuts.disks
        for name, kind in HISTORIES.items():
            beside = Path(folder) / name
            beside.mkdir()
            cuts = assert_each_disk(kind(), beside, draw, most=24)
            print(f"{name}: {cuts.moments} moments, {cuts.disks} different disks; every one holds")
    text = f"{len(histories)} histories, {moments} moments, {disks} different disks; every one holds"
    print(f"seed {asked.seed}: {text}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
