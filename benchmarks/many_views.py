"""What an epoch of few events costs through many views over one stream: milliseconds for each that it touches.

    python -m benchmarks.many_views [--views 1 10 50 200] [--kind all unlike one mixed] [--epochs 8] [--beside TREE …]

An epoch is a commit of fifty events in the event log of a stream, and a refresh of all views by DuckDB with one thread,
in this process, as a run that follows its topics makes it. Four kinds of views:

    all     COUNT and SUM for each shop, of filters that every epoch passes: each view changes
    unlike  the same, of which each adds another number to its sum: no two can be computed by one statement
    one     one of the views is asked for what comes, each other one for another shop
    mixed   COUNT and SUM, a projection, the first three of each shop, MAX over a join with a table, by turns; two
            thirds of them filter away all that comes

Each number of views is measured in a process of its own, and beside it in the source trees that are named (a worktree
of another commit), by turns, so that all figures are of one run: milliseconds of an epoch by the clock and of the
processors, medians, and what each view beyond the first takes of the processors. Digests of all views are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

EVENTS: Final = 50
SHOPS: Final = 20
KINDS: Final = ("all", "unlike", "one", "mixed")
WARM_UP: Final = 3
"""Epochs that pay for what is read and planned for the first time."""

STREAMS: Final = """
CREATE STREAM sales (shop INT, customer VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE shops (shop INT PRIMARY KEY, city VARCHAR) WITH (KAFKA_TOPIC = 'shops', PARTITIONS = 1);
"""
MIXED: Final = (
    "SELECT shop, COUNT(*) AS c, SUM(qty) AS s FROM sales WHERE {filter} GROUP BY shop",
    "SELECT shop, customer, qty * {n} AS q FROM sales WHERE {filter}",
    "SELECT * FROM (SELECT shop, customer, qty, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY qty DESC, customer) AS r"
    " FROM sales WHERE {filter}) AS ranked WHERE r <= 3",
    "SELECT city, MAX(qty) AS m FROM sales JOIN shops ON sales.shop = shops.shop WHERE {filter} GROUP BY city",
)


def main() -> None:
    """Measure every kind and number, in this tree and those beside it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, nargs="+", default=[1, 10, 50, 200])
    parser.add_argument("--kind", nargs="+", default=[*KINDS], choices=KINDS)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--beside", type=Path, nargs="*", default=[])
    asked = parser.parse_args()
    trees = {"here": Path(__file__).parent.parent, **{tree.name: tree for tree in asked.beside}}
    print(
        f"{'kind':<8}{'views':>6}{'tree':>12}{'clock, ms':>12}{'processor':>12}{'a view':>9}{'commits':>9}", flush=True
    )
    for kind in asked.kind:
        alone: dict[str, float] = {}
        for views in asked.views:
            found = measured(trees, kind, views, asked.epochs, asked.turns)
            for name, (clock, processor, commits) in found.items():
                alone.setdefault(name, processor)
                each = f"{(processor - alone[name]) / (views - asked.views[0]):.2f}" if views > asked.views[0] else ""
                print(
                    f"{kind:<8}{views:>6}{name:>12}{clock:>12.1f}{processor:>12.1f}{each:>9}{commits:>9.1f}",
                    flush=True,
                )


def measured(
    trees: dict[str, Path], kind: str, views: int, epochs: int, turns: int
) -> dict[str, tuple[float, float, float]]:
    """{tree: milliseconds of an epoch by the clock, of the processors, commits of views in it}: medians of all turns.

    Raises:
        CalledProcessError: a tree failed; what it said is on the standard error.
        SystemExit: the views of two trees differ.
    """
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in trees}
    rows = set()
    for turn in range(turns):
        for name in [*trees][:: 1 if turn % 2 == 0 else -1]:
            # Run by its path, this file stands in no folder of modules: it is called like one of Python's.
            run = f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r}, run_name='measured')"
            command = [sys.executable, "-P", "-c", run, kind, str(views), str(epochs)]
            paths = {**os.environ, "PYTHONPATH": str(trees[name].resolve())}
            done = subprocess.run(command, cwd=trees[name], env=paths, stdout=subprocess.PIPE, check=True)
            *numbers, said = json.loads(done.stdout.splitlines()[-1])
            found[name].append(tuple(numbers))
            rows.add(said)
    if len(rows) > 1:
        raise SystemExit(f"the views of {' and '.join(trees)} differ")
    return {
        name: (
            statistics.median(each[0] for each in every),
            statistics.median(each[1] for each in every),
            statistics.median(each[2] for each in every),
        )
        for name, every in found.items()
    }


def defined(kind: str, views: int) -> str:
    """The statements of so many views."""
    texts = []
    for n in range(views):
        match kind:
            case "all":
                query = MIXED[0].format(filter=f"qty >= {-n}")
            case "unlike":
                query = MIXED[0].format(filter=f"qty >= {-n}").replace("SUM(qty)", f"SUM(qty) + {n}")
            case "one":
                query = MIXED[0].format(filter=f"shop = {n if n else 1_000_000}")
            case _:
                query = MIXED[n % len(MIXED)].format(filter=f"qty {'>=' if n // 4 % 3 == 0 else '<'} {-n}", n=n)
        texts.append(f"CREATE MATERIALIZED VIEW v{n} AS {query};")
    return STREAMS + "\n".join(texts)


def in_this_process(kind: str, views: int, epochs: int) -> None:
    """Measure, and print milliseconds by the clock and of the processors, commits, and the digest of all views."""
    import pyarrow as pa

    from benchmarks.histories import History
    from strandline.jobs.catalog.relations import event_log
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.run.refresh_views import refresh_all
    from strandline.state_store.delta import reader
    from strandline.state_store.duckdb.engine import DuckDBEngine

    with tempfile.TemporaryDirectory() as folder, DuckDBEngine("2GB", 1) as engine:
        history = History.over(Path(folder), defined(kind, views))
        catalog = history.interpreter.catalog
        sales, shops = (event_log(each) for each in catalog.definitions() if isinstance(each, Source))
        levels = history.levels()
        context = RunContext(None, history.lake, "bench/1", None, engine, "duckdb")

        def take_in(at: int) -> None:
            numbers = range(at * EVENTS, (at + 1) * EVENTS)
            # Each epoch brings a shop that only one view asks for.
            shop = [1_000_000 if n % EVENTS == 0 and kind == "one" else -(n % SHOPS) for n in numbers]
            customer = [f"c{n * 7919 % 1000}" for n in numbers]
            rows = {"shop": shop, "customer": customer, "qty": [n * 31 % 100 for n in numbers]}
            history.append(sales, pa.table(rows), "sales")

        history.append(
            shops, pa.table({"shop": [-n for n in range(SHOPS)], "city": [f"c{n % 5}" for n in range(SHOPS)]})
        )
        clock, processor, commits = [], [], []
        for at in range(WARM_UP + epochs):
            take_in(at)
            began, spent = time.monotonic(), time.process_time()
            done = refresh_all(context, levels, frozenset())
            clock.append(time.monotonic() - began)
            processor.append(time.process_time() - spent)
            commits.append(sum(each.version is not None for each in done.stages))
            if done.failures:
                raise next(iter(done.failures.values()))
        heads = [reader.head(history.lake.table(f"v{n}")) for n in range(views)]
        digests = " ".join(head.record.digest for head in heads if head is not None)
    clock, processor, commits = clock[WARM_UP:], processor[WARM_UP:], commits[WARM_UP:]
    middle = [1000 * statistics.median(clock), 1000 * statistics.median(processor), statistics.median(commits)]
    print(json.dumps([*middle, sha256(digests.encode()).hexdigest()]))


if __name__ == "__main__":
    main()
elif __name__ == "measured":
    in_this_process(sys.argv[1], *map(int, sys.argv[2:4]))
