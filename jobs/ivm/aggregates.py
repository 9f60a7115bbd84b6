"""The aggregate functions of the language, by upper-case name. A new function is one entry here."""

from __future__ import annotations

from jobs.ivm.aggregate_function import AggregateFunction, Bound, Changes
from jobs.ivm.by_offset import ByOffset, CollectList
from jobs.ivm.combining import Extreme, Histogram, StddevSamp, StddevSample
from jobs.ivm.linear import Avg, Count, Sum

__all__ = ["FUNCTIONS", "AggregateFunction", "Bound", "Changes"]

FUNCTIONS: dict[str, AggregateFunction] = {
    function.name: function
    for function in (
        Count(),
        Sum(),
        Avg(),
        Extreme("MIN", "LEAST"),
        Extreme("MAX", "GREATEST"),
        ByOffset("LATEST_BY_OFFSET", newest=True),
        ByOffset("EARLIEST_BY_OFFSET", newest=False),
        CollectList(),
        Histogram(),
        StddevSample(),
        StddevSamp(),
    )
}
