"""The aggregate functions of the language, by upper-case name, and those that users wrote. A new one is an entry here.

Where ksqlDB's function of the same name gives something else, `KSQL_FUNCTIONS` has it: its `bind` notes the difference
in the call's parameters. A bound call is therefore maintained by the function in `FUNCTIONS`, whatever it was bound by.

Aggregate functions that users wrote in Python are, for rules, scalar functions over lists of values:

    Δ rows of a group ──list──> fold ──> state of the epoch ─┐
                                                             ├─merge──> state ──finish──> result
    __state of the group's stored row ───────────────────────┘

With `retract` the accumulator also carries the retracted values, which merge removes. Without it a group that
loses a value is computed again from its rows, here for the longest word:

    self_old              Δ (weight)            settled
    a 'pear'  ("pear")    a 'pear' (−1)         a 'fig' ("fig")      computed again: 'fig' is left
    b 'kiwi'  ("kiwi")    b 'banana' (+1)       b 'banana'           merge("kiwi", "banana")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
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
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, GroupChanges
from strandline.jobs.functions.aggregates.extremes import ByOffset, Extreme, ExtremeBy, TopK, TopKDistinct
from strandline.jobs.functions.aggregates.linear import AllOrAny, Avg, Count, Sum, SumList
from strandline.jobs.functions.aggregates.of_values import HistogramOfValues, ListOfValues, PercentileOfValues
from strandline.jobs.functions.aggregates.statistics import OF_PAIRS, Correlation, Spread, StddevSamp
from strandline.jobs.functions.python import FINISH, FOLD, MERGE, item_type, part_of, registered
from strandline.jobs.functions.scalars.contract import takes
from strandline.jobs.model.definitions import Function
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, VARCHAR, SqlType, array, struct


class CustomAggregate(AggregateFunction):
    """One function, for calls with given types.

    `parameters` of a bound call are the registered name and whether the function can retract: with the types of
    the call that is all that its maintenance needs.

    Args:
        registered: its name in the engines.
        parameters: the declared types.
        returns: the declared type of the result.
        retracts: it has `retract`.
    """

    def __init__(
        self, name: str, registered: str, parameters: tuple[SqlType, ...], returns: SqlType, *, retracts: bool
    ) -> None:
        self.name = name
        self.retractable = retracts
        self._registered = registered
        self._parameters = parameters
        self._returns = returns

    @classmethod
    def declared(cls, function: Function) -> CustomAggregate:
        """The aggregate as CREATE FUNCTION declares it."""
        types = tuple(parameter.type for parameter in function.parameters)
        return cls(function.name, registered(function), types, function.returns, retracts=function.retracts)

    @classmethod
    def bound(cls, call: AggregateCall) -> CustomAggregate:
        """The aggregate as a bound call has it."""
        name, retracts = call.parameters
        return cls(call.function, str(name), call.argument_types, call.type, retracts=bool(retracts))

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if any(isinstance(argument, exp.Star) for argument in arguments):
            raise TypeMismatch(f"{self.name} takes values, not *")
        widened, result = takes(self._returns, *self._parameters)(self.name, types)
        return Bound(arguments, widened, (self._registered, self.retractable), result)

    def accumulator(self, call: AggregateCall) -> SqlType:
        if not self.retractable:
            return VARCHAR
        return struct(("state", VARCHAR), ("went", array(item_type(self._parameters))))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        item = engine.cast(
            engine.struct([(f"a{number}", argument) for number, argument in enumerate(changes.arguments)]),
            item_type(self._parameters),
        )
        state = self._call(FOLD, self._list(engine, changes.came(engine.items(item))))
        if not self.retractable:
            return state
        return engine.struct([("state", state), ("went", self._list(engine, changes.went(engine.items(item))))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        nothing = engine.cast("NULL", array(item_type(self._parameters)))
        if not self.retractable:
            return self._call(MERGE, old, new, nothing)
        parts = (engine.field(old, "state"), engine.field(new, "state"), engine.field(new, "went"))
        return engine.struct([("state", self._call(MERGE, *parts)), ("went", nothing)])

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self._call(FINISH, engine.field(kept, "state") if self.retractable else kept)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return None if self.retractable else BIGINT

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        """The number of retracted values."""
        return None if self.retractable else engine.cast(changes.went("COUNT(*)"), BIGINT)

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return "FALSE" if self.retractable else f"{lost} > 0"

    def _list(self, engine: Engine, items: str) -> str:
        return engine.cast(items, array(item_type(self._parameters)))

    def _call(self, part: str, *arguments: str) -> str:
        return f"{part_of(self._registered, part)}({', '.join(arguments)})"


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
