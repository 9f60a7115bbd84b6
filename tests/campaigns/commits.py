"""Ten thousand commits on one table: does anything grow? `python -m tests.campaigns.commits [commits] [folder]`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.long_life import HEADINGS, LongLife
from tests.support.on_disk import on_disk

_STEPS = 10


def main() -> None:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        began = time.perf_counter()
        table = LongLife(Path(folder) / "t")
        print(HEADINGS)
        for _ in range(_STEPS):
            table.live(commits // _STEPS)
            print(table.figures(), flush=True)
        table.check()
        table.check_feed(max(table.head.version - 500, 0))
        size = sum(each.stat().st_size for each in on_disk(table.table.path).rglob("*") if each.is_file())
        print(f"{time.perf_counter() - began:.0f} s; {size / 1e6:.0f} MB on disk; rows, digest and feed are right")


if __name__ == "__main__":
    main()
