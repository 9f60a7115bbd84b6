"""What the benchmark of the state strategies measured, as the part of docs/state.md that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_BAR = 30
"""The characters of the longest bar of the chart."""


@dataclass(frozen=True)
class Measured:
    """One workload under one strategy.

    Attributes:
        stored: bytes of files, or of the kept keys of a reader of partial state.
        epoch: seconds of an epoch over all views, the keyed sources left out; of partial state, those in which a reader
            of one view drops the keys that the epoch touches.
        hit, miss: seconds of reading one key; a view that is stored has no misses.
    """

    workload: str
    state: str
    stored: int
    epoch: float
    hit: float
    miss: float | None


@dataclass(frozen=True)
class Mix:
    """The Zipf mix of reads of a partial view.

    Attributes:
        full: bytes of all keys; `kept`: of those that were kept in the end.
        hits: the share of the reads that found their key kept.
    """

    keys: int
    skew: float
    full: int
    kept: int
    hits: float
    evictions: int


def written(measured: Sequence[Measured], mix: Mix, about: str) -> str:
    """The text."""
    lines = [
        "<!-- measured: written by `python -m benchmarks.state_strategies --write docs/state.md` -->",
        "",
        "## Measured",
        "",
        f"{about}; one run.",
        "*Stored*: files of the views and their inner tables; for partial state, the memory of a reader that has read",
        "50 keys of the first view. *Epoch*: all views, without the keyed sources below them; for partial state, what",
        "that reader takes to drop the keys that the epoch's changes touch.",
        "",
        "| workload | state | stored | epoch | read, kept | read, computed |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for each in measured:
        miss = "" if each.miss is None else f"{each.miss * 1000:,.1f} ms"
        cells = (each.workload, f"`{each.state}`", f"{each.stored / 1024:,.0f} KiB", f"{each.epoch * 1000:,.0f} ms")
        lines.append(f"| {' | '.join(cells)} | {each.hit * 1e6:,.0f} µs | {miss} |")
    lines += ["", "```text", "an epoch"]
    longest = max(each.epoch for each in measured) or 1.0
    for each in measured:
        bar = "█" * round(each.epoch / longest * _BAR)
        lines.append(f"{each.workload:<24} {each.state:<8} {bar:<{_BAR}} {each.epoch * 1000:,.0f} ms")
    lines += [
        "```",
        "",
        f"A Zipf mix of reads (exponent {mix.skew}) over {mix.keys:,} keys of a partial view: all keys take "
        f"{mix.full / 2**20:.1f} MiB, kept",
        f"were {mix.kept / 2**20:.1f} MiB ({mix.kept / mix.full:.0%}), and {mix.hits:.1%} of the reads were hits "
        f"({mix.evictions:,} evictions).",
        "",
    ]
    return "\n".join(lines)
