"""Random aggregates, over arguments most of which fail on some row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.properties.paths.expression_grammar import Expressions
from tests.properties.paths.expressions import Call, Column, Constant, Expression, columns_of, is_number
from tests.properties.paths.values import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTS,
    SMALL_DECIMAL,
    TIMESTAMP,
    VARCHAR,
)
from tests.properties.paths.views import Aggregate, Scalar
from tests.properties.picker import Picker

ORDERED: Final = (INT, BIGINT, VARCHAR, DATE, TIMESTAMP, SMALL_DECIMAL, DOUBLE)
_THERE: Final = "FILTER (WHERE {0} IS NOT NULL)"
_COUNTED: Final = "lambda e: struct_pack(n := - CAST(e.value AS BIGINT), v := e.key)"
_COUNTS: Final = f"list_transform(map_entries(histogram({{0}}) {_THERE}), {_COUNTED})"
_OF_VALUES: Final[dict[str, tuple[str, str]]] = {
    "TOPK": ("TOPK({0}, 2)", f"coalesce((list({{0}} ORDER BY {{0}} DESC) {_THERE})[1:2], [])"),
    "TOPKDISTINCT": ("TOPKDISTINCT({0}, 2)", f"coalesce((list(DISTINCT {{0}} ORDER BY {{0}} DESC) {_THERE})[1:2], [])"),
    "HISTOGRAM": ("HISTOGRAM({0})", f"coalesce(histogram({{0}}) {_THERE}, MAP())"),
    "MODE": ("MODE({0})", f"(list_sort({_COUNTS}))[1].v"),
    "COUNT_DISTINCT": ("COUNT_DISTINCT({0})", "count(DISTINCT {0})"),
    "ANY_VALUE": ("ANY_VALUE({0})", "min({0})"),
    "MEDIAN": ("MEDIAN({0})", "median({0})"),
    "PERCENTILE_DISC": (
        "PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY {0})",
        "percentile_disc(0.25) WITHIN GROUP (ORDER BY {0})",
    ),
}
"""Those of the values that are there: what they are in our language, and in DuckDB's."""
_LISTS: Final = ("ARRAY_AGG", "TOPK", "TOPKDISTINCT", "HISTOGRAM")
_BY: Final[dict[str, str]] = {
    "MAX_BY": "(list({{0}} ORDER BY {by} DESC NULLS LAST, {{0}} DESC NULLS LAST) FILTER (WHERE {by} IS NOT NULL))[1]",
    "MIN_BY": "(list({{0}} ORDER BY {by} NULLS LAST, {{0}} NULLS FIRST) FILTER (WHERE {by} IS NOT NULL))[1]",
    "ARG_MAX": "(list({{0}} ORDER BY {by} DESC, {{0}} DESC) FILTER (WHERE {by} IS NOT NULL AND {{0}} IS NOT NULL))[1]",
    "ARG_MIN": "(list({{0}} ORDER BY {by}, {{0}}) FILTER (WHERE {by} IS NOT NULL AND {{0}} IS NOT NULL))[1]",
}
"""Those of the row that is first by a column, as DuckDB is asked; of rows that tie the value decides."""


_MOMENTS: Final = (
    "NOW()",
    *(f"NOW() - INTERVAL {some}" for some in ("'1' MINUTE", "90 SECOND", "'1' DAY", "'1 hour'")),
)
_DAYS: Final = (
    "CURRENT_DATE",
    "CURRENT_DATE - 60",
    "CAST(NOW() AS DATE)",
    "CAST(CURRENT_DATE - INTERVAL '2' MONTH AS DATE)",
)


class Aggregates:
    """The grammar of calls.

    Args:
        clock: the lake has one.
    """

    def __init__(self, pick: Picker, *, clock: bool = False) -> None:
        self.pick = pick
        self.clock = clock

    def aged(self, columns: Sequence[Column], percent: int = 100) -> Expression | None:
        """A condition that holds or not as time passes; None where the lake has no clock, or there is no time."""
        # Python has no time for some bounds of windows.
        times = [each for each in columns if each.type in (DATE, TIMESTAMP) and not each.name.startswith("window_")]
        if not self.clock or not times or not self.pick.chance(percent):
            return None
        time = self.pick.one(times)
        moments = _MOMENTS if time.type == TIMESTAMP else _DAYS
        moment = self.pick.one(moments)
        sign = self.pick.one([">", ">", ">=", "<="])
        name = f"{time.type.lower()}_{moments.index(moment)}"
        return Call(sign, (time, Scalar("", name, time.type, moment)), BOOLEAN)

    def aggregate(self, values: Expressions, *, lists: bool) -> Aggregate:
        """A call; `lists`: also those which are empty over no rows and not NULL."""
        made = self._unfiltered(values)
        while made.function in _LISTS and not lists:
            made = self._unfiltered(values)
        # Of these, NULLs count.
        if made.function in ("ARRAY_AGG", "COUNT_IF", *_BY) or self.pick.chance(75):
            return made
        return replace(made, filter=self.aged(values.columns, 50) or values.condition())

    def _unfiltered(self, values: Expressions) -> Aggregate:
        function = self.pick.one(
            [
                "COUNT",
                "COUNT",
                "SUM",
                "SUM",
                "MIN",
                "MAX",
                "AVG",
                "BIT",
                "ARRAY_AGG",
                "STRING_AGG",
                "OF CONDITIONS",
                "FIRST",
                *("OF VALUES", "OF VALUES", "BY"),
            ]
        )
        made = {"OF VALUES": self._of_values, "BY": self._by, "STRING_AGG": self._texts}
        if function in made:
            return made[function](values)
        if function == "AVG":
            return Aggregate("AVG", self.summed(values), DOUBLE)
        if function == "BIT":
            bits = values.whole()
            return Aggregate(self.pick.one(["BIT_AND", "BIT_OR", "BIT_XOR"]), bits, bits.type)
        if function == "ARRAY_AGG":
            return Aggregate("ARRAY_AGG", self.summed(values), "ARRAY<INT>", form="ARRAY_AGG({0} ORDER BY {0})")
        if function == "OF CONDITIONS":
            name, kind = self.pick.one([("COUNT_IF", BIGINT), ("BOOL_AND", BOOLEAN), ("BOOL_OR", BOOLEAN)])
            return Aggregate(name, values.condition(), kind)
        if function == "FIRST":
            return Aggregate("MAX", self.summed(values), INTS, form=self.pick.one(["MAX({0}, 2)", "MIN({0}, 2)"]))
        if function == "COUNT":
            argument = self.pick.one([None, values.any()])
            distinct = argument is not None and argument.type in ORDERED and self.pick.chance(30)
            return Aggregate("COUNT", argument, BIGINT, distinct)
        if function == "SUM":
            return Aggregate(function, self.summed(values), BIGINT, self.pick.chance(25))
        argument = self.ordered(values)
        return Aggregate(function, argument, argument.type)

    def _texts(self, values: Expressions) -> Aggregate:
        """Texts that are joined."""
        texts = values.text()
        if not columns_of(texts):  # DuckDB orders by no constant
            return Aggregate("COUNT", None, BIGINT)
        return Aggregate("STRING_AGG", texts, VARCHAR, form="STRING_AGG({0}, ';' ORDER BY {0})")

    def _of_values(self, values: Expressions) -> Aggregate:
        """A call that shows some of the values, or counts them."""
        function = self.pick.one(list(_OF_VALUES))
        wanted = (INT,) if function == "MEDIAN" else (INT, BIGINT, VARCHAR, DATE)
        argument = values.any()
        columns = values.of(*wanted)
        if argument.type not in wanted or not columns_of(argument):  # DuckDB orders by no constant
            if not columns:
                return Aggregate("COUNT", None, BIGINT)
            argument = self.pick.one(columns)
        kind = argument.type
        types = {
            "TOPK": f"ARRAY<{kind}>",
            "TOPKDISTINCT": f"ARRAY<{kind}>",
            "HISTOGRAM": f"MAP<{kind}, BIGINT>",
            "COUNT_DISTINCT": BIGINT,
            "MEDIAN": DOUBLE,
        }
        form, asked = _OF_VALUES[function]
        return Aggregate(function, argument, types.get(function, kind), form=form, by_order=asked)

    def _by(self, values: Expressions) -> Aggregate:
        """A value of the first row by a column."""
        function = self.pick.one(list(_BY))
        argument = self.flat(values)
        of = [each for each in values.of(*ORDERED) if not isinstance(each, Scalar)]
        if not of or not columns_of(argument):
            return Aggregate("COUNT", argument, BIGINT)
        by = self.pick.one(of)
        asked = _BY[function].format(by=f"{by.alias}__{by.name}")
        return Aggregate(function, argument, argument.type, form=f"{function}({{0}}, {by.sql})", by_order=asked)

    def of_events(self, values: Expressions, *, lists: bool) -> Aggregate:
        """Values in the order of events; `lists`: also those which are empty over no rows and not NULL."""
        argument = self.flat(values)
        functions = ["LATEST", "EARLIEST", "LATEST", "EARLIEST", "ATTR"]
        function = self.pick.one([*functions, "LIST", "SET"] if lists else functions)
        if function == "ATTR":
            asked = "CASE WHEN count(DISTINCT {0}) = 1 AND count({0}) = count(*) THEN min({0}) END"
            return Aggregate("ATTR", argument, argument.type, form="ATTR({0})", by_order=asked)
        if function == "LIST":
            asked = "list({0} ORDER BY {1})"
            return Aggregate(
                "COLLECT_LIST", argument, f"ARRAY<{argument.type}>", form="COLLECT_LIST({0})", by_order=asked
            )
        if function == "SET":
            whole = self.summed(values)
            every = "list({0} ORDER BY {1})"
            asked = f"list_filter({every}, lambda each, place: list_position({every}, each) = place)"
            return Aggregate("COLLECT_SET", whole, INTS, form="COLLECT_SET({0})", by_order=asked)
        arg = "MAX" if function == "LATEST" else "MIN"
        if self.pick.chance(75):
            form, by_order = f"{function}_BY_OFFSET({{0}})", f"ARG_{arg}({{0}}, {{1}})"
        else:  # with NULLs for values
            form, by_order = f"{function}_BY_OFFSET({{0}}, FALSE)", f"ARG_{arg}_NULL({{0}}, {{1}})"
        return Aggregate(f"{function}_BY_OFFSET", argument, argument.type, form=form, by_order=by_order)

    def summed(self, values: Expressions) -> Expression:
        """An INT: the sum of so few cannot leave BIGINT."""
        made = values.whole()
        columns = values.of(INT)
        return made if made.type == INT else self.pick.one(columns) if columns else Constant(1, INT)

    def ordered(self, values: Expressions) -> Expression:
        """A value that MIN and MAX take."""
        made = values.any()
        return made if made.type in ORDERED or is_number(made.type) else self.pick.one(values.of(*ORDERED))

    def flat(self, values: Expressions) -> Expression:
        """A value that rows are grouped by: of no nested type."""
        made = values.any()
        return made if "<" not in made.type else self.pick.one(values.of(INT, VARCHAR))
