"""What 1,000 changes cost after a short and after a long history: it should be the same.

    python -m benchmarks.flat_cost [--small 1000000] [--large 20000000] [--changes 1000] [--epochs 7] [--keys 100000]

Two lakes hold the same tables and views; one has `--small` events behind it, the other `--large`. After the first
refresh both get the same number of events per epoch, in turn, and each view is refreshed by itself:

    linear     COUNT, SUM per product, over the table of visits (rows are replaced and taken away)
    join_max   the article's example: MAX of a join, per category (a lost maximum is looked up again)
    left_join  every visit with its category, if there is one

Each epoch is computed where it is its turn, after one another over the same tables: by DuckDB in this process, by
DuckDB in a Spark task, by Spark's own plan. Printed are the median seconds of the epochs after the warm-up, and
long / short: the aim is at most 1.3.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.histories import WHERE, Engines, History, Where, engines

AIM = 1.3
# The first epochs pay for code that the JVM has not compiled yet.
WARM_UP = 3

VIEWS = """
CREATE MATERIALIZED VIEW linear AS SELECT product, COUNT(*) AS visits, SUM(length) AS total FROM visit GROUP BY product;
CREATE MATERIALIZED VIEW join_max AS SELECT info.category AS category, MAX(visit.length) AS max_length
  FROM info JOIN visit ON info.product = visit.product GROUP BY info.category;
CREATE MATERIALIZED VIEW left_join AS SELECT visit.product AS product, visit.user AS user, length, category
  FROM visit LEFT JOIN info ON visit.product = info.product;
"""

Seconds = dict[tuple[str, Where], dict[int, list[float]]]
"""Seconds of each epoch, by view and place, and by the events of the history."""


def main() -> None:
    """Build both histories, play the epochs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=20_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--keys", type=int, default=100_000)
    asked = parser.parse_args()
    sizes = (asked.small, asked.large)
    with tempfile.TemporaryDirectory() as folder:
        histories = {size: History.begin(Path(folder) / str(size), VIEWS, asked.keys) for size in sizes}
        for size, history in histories.items():
            history.add(size)
        with engines("bench-flat") as both:
            report(measure(both, histories, asked.changes, asked.epochs), sizes, asked.changes)


def measure(both: Engines, histories: dict[int, History], changes: int, epochs: int) -> Seconds:
    """The keyed sources are refreshed before the views, and listed too."""
    seconds: Seconds = defaultdict(lambda: defaultdict(list))
    for size, history in histories.items():
        first = [both.refresh(history, [level]) for level in history.levels()]
        print(f"{size:>12,} events: first refresh {sum(first):.1f} s", flush=True)
    for epoch in range(WARM_UP + epochs):
        for where in WHERE:
            for size, history in histories.items():
                history.add(changes)
                for item in (item for level in history.levels() for item in level):
                    taken = both.refresh(history, [[item]], where)
                    if epoch >= WARM_UP:
                        seconds[item.target, where][size].append(taken)
    return seconds


def report(seconds: Seconds, sizes: tuple[int, int], changes: int) -> None:
    """The table: medians, their ratio, and whether the aim is met."""
    print(f"{changes:,} changes          {sizes[0]:>14,} {sizes[1]:>14,}   ratio")
    for (name, where), by_size in sorted(seconds.items()):
        if name == "info":
            continue  # nothing of it changes
        short, long = (statistics.median(by_size[size]) for size in sizes)
        verdict = "" if long / short <= AIM else f"   above {AIM}"
        print(f"{name:<12} {where:<8} {short:>12.3f} s {long:>12.3f} s   {long / short:.2f}{verdict}")


if __name__ == "__main__":
    main()
