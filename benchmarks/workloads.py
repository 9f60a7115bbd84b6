"""Two workloads, durable and with a changelog, by each engine in one run, their answers checked.

    python -m benchmarks.workloads [--epochs 40] [--engines kernel,task,spark,merge,flink]

What the workloads are is in benchmarks/workload_data.py. Every epoch of ours appends its events to the event logs,
refreshes what reads them and commits it: kernel in the driver, in Spark's tasks, and by Spark's own plans. Beside them
what a careful user writes by hand on Spark (merge: foreachBatch and Delta's MERGE with a change feed), and Apache Flink
(RocksDB, checkpoints every 5 s, mini-batches; its result goes nowhere). Both read prepared files. Flink needs its
libraries once: python -m benchmarks.peers.flink

Printed are events a second over all epochs and over the last seven (steady), and of this process with its children the
processor's seconds (of Flink those of one of its jobs) and the most memory. Spark's JVM is among them from its first
use on, whichever engine's turn it is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.histories import WHERE, Engines, History, Where, engines
from benchmarks.measuring.peak_memory import PeakMemory
from benchmarks.measuring.process_tree import processor_seconds
from benchmarks.peers import flink, hand_written
from benchmarks.workload_data import STEADY, WORKLOADS, Measured, Workload
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.model.definitions import Source
from strandline.state_store.delta import reader


def main() -> None:
    """Run each workload by each engine, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40, help="at most: W1 has ten")
    parser.add_argument("--engines", default=",".join(WHERE))
    asked = parser.parse_args()
    chosen = [where for where in (*WHERE, "merge", "flink") if where in asked.engines.split(",")]
    print(f"{'':<12} {'overall':>12} {'steady':>12} {'CPU-s':>8} {'MB':>7}   (events a second)")
    with engines("bench-workloads") as both, tempfile.TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            epochs = min(asked.epochs, workload.length)
            for where in chosen:
                before = processor_seconds(os.getpid())
                with PeakMemory() as peak:
                    measured = _measured(both, workload, where, epochs, Path(folder))
                measured.processor = measured.processor or processor_seconds(os.getpid()) - before
                rates = f"{measured.rate(epochs):>12,.0f} {measured.rate(STEADY):>12,.0f}"
                cost = f"{measured.processor:>8.1f} {peak.megabytes:>7,.0f}"
                print(f"{workload.name} {where:<9} {rates} {cost}", flush=True)


def _measured(both: Engines, workload: Workload, engine: str, epochs: int, folder: Path) -> Measured:
    match engine:
        case "merge":
            return hand_written.run(both.spark, workload, epochs, folder / f"{workload.name}-merge")
        case "flink":
            return flink.run(workload, epochs, folder / f"{workload.name}-flink")
        case _:
            return run(both, workload, next(where for where in WHERE if where == engine), epochs, folder)


def run(both: Engines, workload: Workload, where: Where, epochs: int, folder: Path) -> Measured:
    """One workload by one of our engines, in a lake of its own."""
    history = History.over(folder / f"{workload.name}-{where}", workload.statements)
    history.merges = both.duckdb_engine.kept.merges if where == "kernel" else None
    levels = history.levels()
    measured = Measured()
    for number, changes in enumerate(workload.epochs(), 1):
        if number > epochs:
            break
        began = time.monotonic()
        for name, events in changes.items():
            source = history.interpreter.catalog.get(name)
            assert isinstance(source, Source)
            history.append(event_log(source), events)
        both.refresh(history, levels, where)
        measured.seconds.append(time.monotonic() - began)
        measured.events.append(sum(events.num_rows for events in changes.values()))
        workload.check(reader.read_rows(history.lake.table(workload.view)), number)
    return measured


if __name__ == "__main__":
    main()
