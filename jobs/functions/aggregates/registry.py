"""The aggregate functions of the language, by upper-case name. A new function is one entry here.

Where ksqlDB's function of the same name gives something else, `KSQL_FUNCTIONS` has it: its `bind` notes the difference
in the call's parameters. A bound call is therefore maintained by the function in `FUNCTIONS`, whatever it was bound by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from strandline.jobs.functions.aggregates.bag import (
    AdditiveDistinct,
    Bits,
    CountDistinct,
    Mode,
    MostFrequent,
    Percentile,
    WithDistinct,
)
from strandline.jobs.functions.aggregates.collections import (
    Attr,
    CollectList,
    CollectSet,
    Histogram,
    OrderedEnd,
    OrderedList,
    OrderedText,
)
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound
from strandline.jobs.functions.aggregates.extremes import ByOffset, Extreme, ExtremeBy, TopK, TopKDistinct
from strandline.jobs.functions.aggregates.linear import AllOrAny, Avg, Count, Sum, SumList
from strandline.jobs.functions.aggregates.of_values import HistogramOfValues, ListOfValues, PercentileOfValues
from strandline.jobs.functions.aggregates.python import CustomAggregate
from strandline.jobs.functions.aggregates.statistics import OF_PAIRS, Correlation, Spread, StddevSamp
from strandline.jobs.model.stage import AggregateCall

__all__ = ["FUNCTIONS", "AggregateFunction", "Bound", "function_of", "functions"]


def _by_name(*listed: AggregateFunction) -> dict[str, AggregateFunction]:
    return {function.name: function for function in listed}


_SYNONYMS = {
    "LIST": "ARRAY_AGG",
    "STDDEV": "STDDEV_SAMPLE",
    "CORR": "CORRELATION",
    "ARBITRARY": "ANY_VALUE",
    "GROUP_CONCAT": "STRING_AGG",
    "LISTAGG": "STRING_AGG",
    **dict.fromkeys(("ARG_MIN", "ARGMIN"), "MIN_BY"),
    **dict.fromkeys(("ARG_MAX", "ARGMAX"), "MAX_BY"),
    **dict.fromkeys(("FIRST",), "FIRST_VALUE"),
    **dict.fromkeys(("LAST",), "LAST_VALUE"),
    "BOOLAND_AGG": "BOOL_AND",
    "LOGICAL_AND": "BOOL_AND",
    **dict.fromkeys(("MEAN", "FAVG"), "AVG"),
    "LOGICAL_OR": "BOOL_OR",
    "BOOLOR_AGG": "BOOL_OR",
}
"""Names of functions in other dialects, and the function of ours that gives the same."""


def canonical(name: str) -> str:
    """The name of the function that a name of another dialect, in capitals, means."""
    return _SYNONYMS.get(name, name)


FUNCTIONS: Mapping[str, AggregateFunction] = _by_name(
    WithDistinct(Count(), CountDistinct()),
    CountDistinct(),
    WithDistinct(Sum(), AdditiveDistinct(Sum())),
    WithDistinct(Avg(), AdditiveDistinct(Avg())),
    SumList(),
    AllOrAny("BOOL_AND", every=True),
    AllOrAny("EVERY", every=True),
    AllOrAny("BOOL_OR", every=False),
    AllOrAny("ANY", every=False),
    Extreme("MIN", greatest=False),
    Extreme("MAX", greatest=True),
    ExtremeBy("MIN_BY", greatest=False),
    ExtremeBy("MAX_BY", greatest=True),
    TopK(),
    TopKDistinct(),
    ByOffset("LATEST_BY_OFFSET", newest=True),
    ByOffset("EARLIEST_BY_OFFSET", newest=False),
    WithDistinct(CollectList("COLLECT_LIST"), CollectSet("COLLECT_LIST")),
    WithDistinct(CollectList("ARRAY_AGG"), CollectSet("ARRAY_AGG")),
    OrderedList("ARRAY_AGG"),
    OrderedList("COLLECT_LIST"),
    OrderedText("STRING_AGG"),
    ByOffset("FIRST_VALUE", newest=False, skip_nulls=False),
    ByOffset("LAST_VALUE", newest=True, skip_nulls=False),
    OrderedEnd("FIRST_VALUE", last=False),
    OrderedEnd("LAST_VALUE", last=True),
    Mode(),
    Percentile("PERCENTILE_CONT", between=True),
    Percentile("PERCENTILE_DISC", between=False),
    Bits("BIT_AND", "&"),
    Bits("BIT_OR", "|"),
    Bits("BIT_XOR", "^"),
    CollectSet("COLLECT_SET"),
    Histogram(),
    Attr(),
    Spread("STDDEV_SAMPLE"),
    StddevSamp(),
    Spread("STDDEV_POP", population=True),
    Spread("VARIANCE", root=False),
    Spread("VAR_SAMP", root=False),
    Spread("VAR_POP", population=True, root=False),
    Correlation(),
    *OF_PAIRS,
    # Any of the values will do: the smallest is the same one each time.
    Extreme("ANY_VALUE", greatest=False),
)

_IN_ORDER = ("ARRAY_AGG", "COLLECT_LIST")

_OF_VALUES: Mapping[str, AggregateFunction] = _by_name(
    MostFrequent(),
    PercentileOfValues("PERCENTILE_CONT", between=True),
    PercentileOfValues("PERCENTILE_DISC", between=False),
    HistogramOfValues("HISTOGRAM"),
    *(ListOfValues(CollectList(name)) for name in _IN_ORDER),
    *(ListOfValues(OrderedList(name)) for name in _IN_ORDER),
    ListOfValues(OrderedText("STRING_AGG")),
    ListOfValues(OrderedEnd("FIRST_VALUE", last=False)),
    ListOfValues(OrderedEnd("LAST_VALUE", last=True)),
)
"""What functions become over the different values of a group (`AggregateFunction.of_values`), where that is none of
`FUNCTIONS`."""

KSQL_FUNCTIONS: Mapping[str, AggregateFunction] = {
    **FUNCTIONS,
    **_by_name(
        WithDistinct(Sum(ksql=True), AdditiveDistinct(Sum(ksql=True))),
        WithDistinct(Avg(ksql=True), AdditiveDistinct(Avg(ksql=True))),
        SumList(ksql=True),
        Spread("STDDEV_SAMPLE", zero=True),
        Spread("STDDEV_SAMP", root=False, zero=True),
        Correlation(nan=True),
    ),
}


def functions(semantics: Literal["sql", "ksql"]) -> Mapping[str, AggregateFunction]:
    """The functions that the calls of a query with those semantics are bound to."""
    return KSQL_FUNCTIONS if semantics == "ksql" else FUNCTIONS


def function_of(call: AggregateCall) -> AggregateFunction:
    """The function that maintains a bound call: one of these, one over their values, or one that a user wrote."""
    return FUNCTIONS.get(call.function) or _OF_VALUES.get(call.function) or CustomAggregate.bound(call)
