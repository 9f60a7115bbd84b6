"""The process that Spark forks its Python workers from: it has imported already what a refresh needs.

PySpark's own daemon imports nothing, so each worker imports the engine when its first task asks for it (0.5 s of CPU),
and the collection of garbage that PySpark asks for after every task walks through all of it (50 ms). What is imported
and frozen here belongs to all workers and is walked through by none. PySpark forks before it imports for fear of
threads: two run by then, OpenBLAS's and jemalloc's, and both libraries provide for forks.
"""

from __future__ import annotations

import gc
import os

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import strandline.jobs.run.refresh_views
import strandline.state_store.duckdb.engine  # noqa: F401


def main() -> None:
    """Import, freeze, then fork workers until Spark closes standard input."""
    gc.collect()
    gc.freeze()
    try:
        manager()
    except SystemExit as end:
        # An interpreter that has imported DuckDB and ends in good order fills a page with what its module leaks.
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
