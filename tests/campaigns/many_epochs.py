"""Thousands of small epochs with compaction and retention on: `python -m tests.campaigns.many_epochs --epochs 2000`.

Held: live files, files of a folder and entries of a log are bounded; the last hundred epochs take at most 1.2 times the
seconds of the second hundred; every maintenance is proved; a restore plays no more than rows and kept changes; at the
end every table passes `strandline verify --deep`.

Seconds by the clock are those of other programs as well. With `--busy` the seconds are held in which the process was at
work; both are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.verify.verify import verify
from tests.support.many_epochs import ManyEpochs

SLOWER: Final = 1.2
"""The last hundred epochs against the second hundred: more would mean that age costs something."""
LIVE_FILES: Final = 64
"""Eight levels of fewer than eight files each: what the tiers of compaction allow at this size."""
FOLDER_FILES: Final = 1_500
"""The files of a folder: three a version (entry, data, vector), of some hundred versions within the horizon."""
_HUNDRED: Final = 100


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2_000)
    parser.add_argument("--horizon-seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="other programs are at work: hold the CPU's seconds")
    said = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="strandline-epochs-") as folder:
        settings = load_settings(lake=Path(folder) / "lake")
        with ManyEpochs(settings, said.horizon_seconds, said.seed) as run:
            faults = lived(run, said.epochs)
            clock, cpu = slower("clock", run.seconds), slower("CPU", run.cpu_seconds)
            faults += cpu if said.busy else clock
        faults += [
            f"{each.table}: {each.check}: {each.what}" for each in verify(settings, deep=True) if each.ok is False
        ]
    for fault in faults:
        print(f"NOT HELD: {fault}")
    print("held" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


def lived(run: ManyEpochs, epochs: int, step: int = _HUNDRED) -> list[str]:
    """Run so many epochs, print what each `step` of them came to; what did not hold."""
    faults: list[str] = []
    print(f" epochs  s/{step}  CPU s  live  files  entries  restore plays  maintenance s")
    spent = 0.0
    plays = 0
    while len(run.seconds) < epochs:
        run.live(min(step // 2, epochs - len(run.seconds)))
        began = time.perf_counter()
        done = run.maintain()
        spent += time.perf_counter() - began
        faults += [f"{each.table} at {each.version}: {each.note}" for each in done.tables if each.proved is False]
        plays = max(each.restore_rows_after for each in done.tables if each.table != "visits")
        if len(run.seconds) % step == 0:
            figures = run.figures().values()
            live, files = max(each.live for each in figures), max(each.files for each in figures)
            faults += [f"{live} live files"] if live > LIVE_FILES else []
            faults += [f"{files} files of a folder"] if files > FOLDER_FILES else []
            taken, busy = (sum(each[-step:]) for each in (run.seconds, run.cpu_seconds))
            entries = max(each.entries for each in figures)
            print(
                f"{len(run.seconds):7} {taken:6.2f} {busy:6.2f} {live:5} {files:6} {entries:8} {plays:14} {spent:14.2f}"
            )
            spent = 0.0
    run.check()
    return faults


def slower(name: str, seconds: list[float]) -> list[str]:
    """Whether the last hundred epochs took too long, by seconds of this name; they are printed."""
    if len(seconds) < 4 * _HUNDRED:
        return []
    early, late = sum(seconds[_HUNDRED : 2 * _HUNDRED]), sum(seconds[-_HUNDRED:])
    print(f"{name}: second hundred {early:.2f} s, last hundred {late:.2f} s: {late / early:.2f} times")
    return [f"the last hundred epochs took {late / early:.2f} times as long"] if late > SLOWER * early else []


if __name__ == "__main__":
    sys.exit(main())
