"""Ten views over one join: what they cost together when they share it, against one such view alone.

    python -m benchmarks.shared_views [--events 1000000] [--changes 1000] [--epochs 7] [--keys 100000]

Three lakes with the same history: one view (`STATE='shared'`), ten views that share, ten that do not (`STATE='full'`).
Printed are the median seconds of an epoch over all views of a lake, their ratio to one view (the aim for sharing: at
most 3), and the tables that hold the join, with their rows: shared, there is one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.histories import Engines, History, engines
from strandline.state_store.delta import reader

AIM = 3.0
# The first epochs pay for code that the JVM has not compiled yet.
WARM_UP = 3

SELECTS = (
    "category, MAX(length) AS v",
    "category, MIN(length) AS v",
    "category, SUM(length) AS v",
    "category, COUNT(*) AS v",
    "category, AVG(length) AS v",
    "user, MAX(length) AS v",
    "user, SUM(length) AS v",
    "user, COUNT(*) AS v",
    "length, COUNT(*) AS v",
    "length, MAX(user) AS v",
)
"""What each view shows; the first column is what it groups by."""


def views(count: int, state: str) -> str:
    """The definitions of so many views over visit ⋈ info."""
    return "".join(
        f"CREATE MATERIALIZED VIEW view_{number} WITH (STATE='{state}') AS SELECT {select}"
        f" FROM visit JOIN info ON visit.product = info.product GROUP BY {select.split(',')[0]};\n"
        for number, select in enumerate(SELECTS[:count])
    )


def main() -> None:
    """Build the three histories, play the epochs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--keys", type=int, default=100_000)
    asked = parser.parse_args()
    ways = {"one view": views(1, "shared"), "ten, shared": views(10, "shared"), "ten, private": views(10, "full")}
    with tempfile.TemporaryDirectory() as folder:
        histories = {
            name: History.begin(Path(folder) / name.replace(", ", "-"), text, asked.keys) for name, text in ways.items()
        }
        for history in histories.values():
            history.add(asked.events)
        with engines("bench-shared") as both:
            report(measure(both, histories, asked.changes, asked.epochs), histories)


def measure(both: Engines, histories: dict[str, History], changes: int, epochs: int) -> dict[str, list[float]]:
    """Seconds of each epoch over all views: the keyed sources are refreshed before, and do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in histories}
    for name, history in histories.items():
        first = [both.refresh(history, [level]) for level in history.levels()]
        print(f"{name}: first refresh {sum(first):.1f} s", flush=True)
    for epoch in range(WARM_UP + epochs):
        for name, history in histories.items():
            history.add(changes)
            sources, *levels = history.levels()
            both.refresh(history, [sources])
            taken = sum(both.refresh(history, [level]) for level in levels)
            if epoch >= WARM_UP:
                seconds[name].append(taken)
    return seconds


def report(seconds: dict[str, list[float]], histories: dict[str, History]) -> None:
    """The table: medians, ratios, and where the join is stored."""
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    one = medians["one view"]
    for name, median in medians.items():
        verdict = f"   above {AIM}" if name == "ten, shared" and median / one > AIM else ""
        stored = ", ".join(f"{table} ({rows:,} rows)" for table, rows in arrangements(histories[name]))
        print(f"{name:<13} {median:>7.2f} s   {median / one:>5.2f} x{verdict}   inner tables: {stored or 'none'}")


def arrangements(history: History) -> list[tuple[str, int]]:
    """The tables that are no definition's own, and their rows: each is named once, however many views read it."""
    kept = {stage.table for level in history.levels() for item in level for stage in item.stages}
    inner = kept - {definition.name for definition in history.interpreter.catalog.definitions()}
    heads = {name: reader.head(history.lake.table(name)) for name in sorted(inner)}
    return [(name, head.record.rows) for name, head in heads.items() if head is not None]


if __name__ == "__main__":
    main()
