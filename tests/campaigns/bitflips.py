"""The campaign of flipped bits: `python -m tests.campaigns.bitflips --seed N --flips M`.

Each flip is one bit of one file of a small lake. All readers of that part of the lake are asked, as processes that
have just begun, and then the bit is put back. Allowed are the answer of the undamaged lake, and a typed error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.campaigns.flips import Flip, Outcome, planned
from tests.campaigns.lake import make_lake
from tests.campaigns.processes import run
from tests.support.on_disk import on_disk

Tally = dict[str, Counter[Outcome]]
Bad = list[tuple[Flip, Outcome, str]]


def campaign(seed: int, count: int, workers: int, only: int | None = None) -> tuple[Tally, Bad]:
    """The outcomes by kind of file, and the flips that must not be.

    Args:
        only: the number of the one flip of the plan to try.
    """
    tally: Tally = {}
    bad: Bad = []

    def found(flip: Flip, outcome: Outcome, why: str) -> None:
        tally.setdefault(flip.kind, Counter())[outcome] += 1
        if outcome.bad:
            bad.append((flip, outcome, why))

    with tempfile.TemporaryDirectory(prefix="flips-") as folder:
        lake = make_lake(Path(folder) / "lake", seed)
        flips = planned(on_disk(lake.root), seed, count)
        run(on_disk(lake.root), flips if only is None else [flips[only]], workers, found)
    return tally, bad


def table(tally: Tally) -> str:
    """The outcomes by kind of file, in Markdown."""
    lines = [
        f"| kind of file | flips | {' | '.join(Outcome)} |",
        f"| --- | ---: |{' ---: |' * len(Outcome)}",
    ]
    total: Counter[Outcome] = sum(tally.values(), Counter())
    for kind, counts in [*sorted(tally.items()), ("all", total)]:
        cells = " | ".join(f"{counts[outcome]:,}" for outcome in Outcome)
        lines.append(f"| {kind} | {counts.total():,} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    """Exit code 1 when a flip came to anything but the right answer or a typed error."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.bitflips", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="the number of the one flip to try")
    asked = parser.parse_args()
    begin = time.monotonic()
    tally, bad = campaign(asked.seed, asked.flips, asked.workers, asked.only)
    print(table(tally))
    print(f"\nseed {asked.seed}, {time.monotonic() - begin:.0f} s")
    for flip, outcome, why in bad:
        print(f"\n{outcome}: {flip}\n  {why}\n  again: --seed {asked.seed} --flips {asked.flips} --only {flip.number}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
