"""What 1,000 changes cost over few and over many keys, where rows are looked up and where they are scanned.

    python -m benchmarks.lookups [--keys 100000,1000000,10000000] [--changes 1000] [--epochs 6]

For each number of keys a lake holds a keyed source of as many rows, and views over it. Epochs are computed by DuckDB
in this process, in turn by an engine that looks rows up in arrangements and by one that scans. Printed are the median
seconds of the epochs after those in which files are arranged, their ratio in this run, and how much the look-ups of the
largest lake cost of those of the smallest: the aim is at most 2.

    visit      the keyed source: the stored rows of the changed keys
    linear     COUNT, SUM per product: 1,000 groups, which are scanned
    join_max   MAX of a join, per category: the stored rows of a category that lost its maximum
    left_join  every visit with its category, if there is one
    firsts     the first three users of each product and length
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

from benchmarks.flat_cost import VIEWS
from benchmarks.histories import PIPELINE, History
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import RefreshUnit
from strandline.state_store.arrangements import PATIENCE, Arrangements
from strandline.state_store.duckdb.engine import DuckDBEngine

AIM = 2.0
# Each file is arranged at its third reading by key; the first readings after that load the pages.
WARM_UP = PATIENCE + 2

MORE = """
CREATE MATERIALIZED VIEW firsts AS SELECT product, user, length FROM
  (SELECT product, user, length, ROW_NUMBER() OVER (PARTITION BY product, length ORDER BY user) AS n FROM visit)
  AS ranked WHERE n <= 3;
"""

Way = Literal["looked up", "scanned"]
Seconds = dict[tuple[str, int, Way], list[float]]


def main() -> None:
    """Build a lake for each number of keys, play the epochs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="100000,1000000,10000000")
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=6)
    asked = parser.parse_args()
    sizes = [int(each) for each in asked.keys.split(",")]
    seconds: Seconds = defaultdict(list)
    for keys in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), keys, asked.changes, asked.epochs, seconds)
    report(seconds, sizes)


def measure(folder: Path, keys: int, changes: int, epochs: int, seconds: Seconds) -> None:
    """Play the epochs over one number of keys."""
    arrangements = Arrangements(folder / "arrangements", 64 << 30)
    with DuckDBEngine("3000MB", 2, arrangements) as looking, DuckDBEngine("3000MB", 2) as scanning:
        history = History.begin(folder / "lake", VIEWS + MORE, keys)
        # Events draw their keys at random: of so many nearly all keys have one.
        history.add(3 * keys)
        items = [item for level in history.levels() for item in level]
        first = {item.target: _refreshed(history, item, scanning) for item in items}
        print(f"{keys:>12,} keys: first refresh {sum(first.values()):.1f} s", flush=True)
        for epoch in range(2 * (WARM_UP + epochs)):
            way: Way = "looked up" if epoch % 2 else "scanned"
            history.add(changes)
            for item in items:
                taken = _refreshed(history, item, looking if way == "looked up" else scanning)
                if epoch >= 2 * WARM_UP:
                    seconds[item.target, keys, way].append(taken)


def _refreshed(history: History, item: RefreshUnit, engine: DuckDBEngine) -> float:
    """Bring one table to the heads of its inputs; the seconds that it took."""
    context = RunContext(None, history.lake, f"{PIPELINE}/1", duckdb_engine=engine, engine="duckdb")
    began = time.monotonic()
    for failure in refresh_all(context, [[item]], frozenset()).failures.values():
        raise failure
    return time.monotonic() - began


def report(seconds: Seconds, sizes: list[int]) -> None:
    """The table: medians by number of keys, scanned ÷ looked up, and the largest ÷ the smallest."""
    print("".join([f"{'':<12}", *(f"{keys:>28,} keys" for keys in sizes), f"{'largest ÷ smallest':>22}"]))
    for name in dict.fromkeys(name for name, _, _ in seconds):
        if name == "info":
            continue  # nothing of it changes
        line, medians = f"{name:<12}", []
        for keys in sizes:
            found, scan = (statistics.median(seconds[name, keys, way]) for way in ("looked up", "scanned"))
            medians.append(found)
            line += f"{found:>10.3f} : {scan:>7.3f} s = {scan / found:>5.1f} ×"
        growth = medians[-1] / medians[0]
        print(f"{line}{growth:>18.2f}{'' if growth <= AIM else f'   above {AIM}'}")


if __name__ == "__main__":
    main()
