"""What 500 changes over six groups cost while the groups have more and more different values: it should be the same.

    python -m benchmarks.collections [--values 10000 100000 1000000] [--changes 500] [--epochs 5] [--beside TREE …]

A stream has as many different values as it says, spread over six groups, before the first refresh. Then come epochs of
changes, of which half are values that are there and half are new, and one view at a time is refreshed by DuckDB in this
process. Each view is measured in a process of its own, and beside it in the source trees that are named (a worktree of
another commit), so that all figures are of one run: seconds by the clock, and in parentheses those of the processors,
which a busy machine changes less. A process that does not end within `--patience` seconds has none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

GROUPS: Final = 6
WARM_UP: Final = 2
"""Epochs that pay for what is read and planned for the first time."""
AIM: Final = 0.1
"""Seconds that an epoch may take, whatever the groups hold."""

STREAM = """
CREATE STREAM s (g INT, x BIGINT, t VARCHAR) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE MATERIALIZED VIEW v AS SELECT g, {} AS a FROM s GROUP BY g;
"""
CALLS = {
    "count": "COUNT(*)",
    "min-max": "MIN(x) + MAX(x)",
    "arg-max": "MAX_BY(t, x)",
    "latest": "LATEST_BY_OFFSET(x)",
    "topk": "TOPK(x, 10)",
    "topkdistinct": "TOPKDISTINCT(x, 10)",
    "count-distinct": "COUNT(DISTINCT t)",
    "approx-distinct": "APPROX_COUNT_DISTINCT(t)",
    "three-distinct": "COUNT(DISTINCT t) + COUNT(DISTINCT x) + COUNT(DISTINCT t || 'a')",
    "sum-distinct": "SUM(DISTINCT x)",
    "avg-distinct": "AVG(DISTINCT x)",
    "mode": "MODE(x)",
    "median": "MEDIAN(x)",
    "percentile-disc": "PERCENTILE_DISC(0.99) WITHIN GROUP (ORDER BY t)",
    "bit-or": "BIT_OR(x)",
    "first-ordered": "FIRST_VALUE(x ORDER BY t)",
    "histogram": "HISTOGRAM(t)",
    "collect-set": "COLLECT_SET(x)",
    "collect-list": "COLLECT_LIST(x)",
    "array-agg-ordered": "ARRAY_AGG(x ORDER BY t)",
    "string-agg": "STRING_AGG(t, ',' ORDER BY t)",
}


def main() -> None:
    """Measure every call at every size, in this tree and those beside it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--beside", type=Path, nargs="*", default=[])
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument("--calls", nargs="*", default=list(CALLS), choices=list(CALLS))
    asked = parser.parse_args()
    trees = {"here": Path(__file__).parent.parent, **{tree.name: tree for tree in asked.beside}}
    names = [f"{name} {values:,}" for values in asked.values for name in trees]
    print(" " * 16 + "".join(f"{name:>22}" for name in names), flush=True)
    for call in asked.calls:
        print(f"{call:<16}", end="", flush=True)
        for values in asked.values:
            for tree in trees.values():
                numbers = map(str, (values, asked.changes, asked.epochs))
                found = in_tree(tree.resolve(), [call, *numbers], asked.patience)
                print(f"{_said(found, asked.patience):>22}", end="", flush=True)
        print(flush=True)


def in_tree(tree: Path, arguments: list[str], patience: float) -> tuple[float, float] | None:
    """Median seconds of an epoch, by the clock and of the processors, in a process that runs the code of a tree; None:
    it took too long.

    Raises:
        CalledProcessError: it failed; what it said is on the standard error.
    """
    # Run by its path, this file stands in no folder of modules: it is called like one of Python's.
    run = f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r}, run_name='measured')"
    command = [sys.executable, "-P", "-c", run, *arguments]
    paths = {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=paths, timeout=patience, stdout=subprocess.PIPE, check=True)
    except subprocess.TimeoutExpired:
        return None
    clock, processors = json.loads(done.stdout.splitlines()[-1])
    return float(clock), float(processors)


def _said(found: tuple[float, float] | None, patience: float) -> str:
    if found is None:
        return f"> {patience:.0f} s in all"
    clock, processors = found
    return f"{clock:.3f} ({processors:.3f}){' ' if clock <= AIM else '!'}"


def measured(call: str, values: int, changes: int, epochs: int) -> tuple[float, float]:
    """Median seconds of an epoch after the warm-up, by the clock and of the processors."""
    history_of = importlib.import_module("benchmarks.histories").History
    event_log = importlib.import_module("strandline.jobs.catalog.relations").event_log
    context_of = importlib.import_module("strandline.jobs.ivm.refresh.context").RunContext
    refresh_all = importlib.import_module("strandline.jobs.run.refresh_views").refresh_all
    engine_of = importlib.import_module("strandline.state_store.duckdb.engine").DuckDBEngine

    with tempfile.TemporaryDirectory() as folder, engine_of("4000MB", 2) as engine:
        history = history_of.over(Path(folder), STREAM.format(CALLS[call]))
        log = event_log(history.interpreter.catalog.get("s"))
        context = context_of(None, history.lake, "bench/1", duckdb_engine=engine, engine="duckdb")

        def refreshed() -> tuple[float, float]:
            clock, processors = time.monotonic(), time.process_time()
            outcome = refresh_all(context, history.levels(), frozenset())
            for failure in outcome.failures.values():
                raise failure
            return time.monotonic() - clock, time.process_time() - processors

        history.append(log, events(0, values), "s")
        refreshed()
        taken = []
        for epoch in range(WARM_UP + epochs):
            new = changes // 2
            history.append(log, events(values + epoch * new, new), "s")
            history.append(log, events(epoch * 7919 % values, changes - new), "s")
            taken.append(refreshed())
        clocks, processors = zip(*taken[WARM_UP:], strict=True)
        return statistics.median(clocks), statistics.median(processors)


def events(first: int, count: int) -> pa.Table:
    """Events with the values from `first` on, one each."""
    at = np.arange(first, first + count)
    texts = pa.array([f"value {each}" for each in at])
    return pa.table({"g": pa.array(at % GROUPS), "x": pa.array(at), "t": texts})


if __name__ == "__main__":
    main()
if __name__ == "measured":
    asked_call, *numbers = sys.argv[1:]
    print(json.dumps(measured(asked_call, *map(int, numbers))))
