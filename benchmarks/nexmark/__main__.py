"""Puts Nexmark's events into the topics of the pipeline `nexmark`.

    strandline apply jobs/pipelines/nexmark.sql
    python -m benchmarks.nexmark [--first 0] [--events 100000] [--rate 10000] [--seed 1]
    strandline run nexmark

Events are functions of their numbers: `--first` goes on where another call ended.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import Any

from benchmarks.nexmark.generator import Generator, side_input
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import load_settings
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

# As many as are encoded and written at once.
BATCH = 50_000


def main() -> int:
    """Fill the topics; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first event")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=10_000, help="events per second of their own time")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    try:
        fill(Generator(asked.seed, asked.rate), asked.first, asked.first + asked.events)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def fill(generator: Generator, first: int, last: int) -> None:
    """Insert the events from `first` up to, and without, `last`; before event 0 also the side input."""
    settings = load_settings()
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)

    def insert(name: str, rows: list[dict[str, Any]]) -> None:
        source = catalog.get(name)
        assert isinstance(source, Source)
        insert_rows(source, rows, settings, lake)

    if first == 0:
        insert("side_input", side_input())
    for begin in range(first, last, BATCH):
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in generator.events(begin, min(begin + BATCH, last)):
            assert event.row is not None
            rows[event.kind].append(event.row)
        for kind, given in rows.items():
            insert(kind, given)
        print(f"events {begin:,} to {min(begin + BATCH, last) - 1:,}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
