"""Aggregate calls of a recomputation, written with an engine's own functions and without the rules' state.

LATEST_BY_OFFSET(x)   DuckDB   arg_max({'v': x}, at) FILTER (WHERE x IS NOT NULL), and of it the field v
TOPK(x, 2)            DuckDB   the first two of list(x ORDER BY x DESC) FILTER (WHERE x IS NOT NULL)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.jobs.engines.engine import Dialect, filtered
from strandline.jobs.functions.aggregates.linear import LARGE, SCALE, WHEN_EMPTY
from strandline.jobs.functions.aggregates.statistics import DEVIATION, LARGEST
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BaseType

_SAME_WORD = {
    **{name: name for name in ("COUNT", "SUM", "AVG", "MIN", "MAX", "VARIANCE", "VAR_SAMP", "VAR_POP", "STDDEV_POP")},
    **{"STDDEV_SAMPLE": "stddev_samp", "STDDEV_SAMP": "var_samp", "CORRELATION": "corr"},
    **{
        name: name for name in ("COVAR_POP", "COVAR_SAMP", "REGR_AVGX", "REGR_AVGY", "REGR_SXX", "REGR_SYY", "REGR_SXY")
    },
    "ANY_VALUE": "MIN",
    **{"BIT_AND": "bit_and", "BIT_OR": "bit_or", "BIT_XOR": "bit_xor"},
    **{"BOOL_AND": "bool_and", "EVERY": "bool_and", "BOOL_OR": "bool_or", "ANY": "bool_or"},
}


@dataclass(frozen=True)
class Written:
    """An aggregate call whose arguments and filter are columns of a subquery.

    Attributes:
        arguments: the columns that hold the arguments' values.
        where: the column that holds FILTER's condition; None when there is none.
        at: the column that holds the row's place in the order of events.
        over: the window, in brackets, over whose frames it is; empty: over groups.
    """

    call: AggregateCall
    arguments: list[str]
    where: str | None
    at: str
    over: str = ""

    @property
    def x(self) -> str:
        """The first argument."""
        return self.arguments[0]

    def of(self, aggregate: str, *conditions: str) -> str:
        """Write an aggregate over the rows that FILTER and the conditions let through."""
        found = filtered(aggregate, self.where, *conditions)
        return f"{found} OVER {self.over}" if self.over else found

    def listed(self, items: str, *conditions: str) -> str:
        """Write DuckDB's list of the items; empty over no rows."""
        return f"COALESCE({self.of(f'list({items})', *conditions)}, [])"

    @property
    def known(self) -> str:
        """The condition that the first argument is not NULL."""
        return f"{self.x} IS NOT NULL"


def call_text(written: Written, dialect: Dialect) -> str:
    """Write the value of an aggregate call.

    Raises:
        NotSupported: the engine has no function of its own for it.
    """
    call = written.call
    word = "stddev_samp" if DEVIATION in call.parameters else _SAME_WORD.get(call.function)
    if word is None or (call.function == "COUNT" and len(written.arguments) > 1):
        if dialect != "duckdb" or call.function not in _DUCKDB:
            raise NotSupported(f"{call.function} has no words of {dialect}'s own")
        return _DUCKDB[call.function](written)
    if call.function in _MOMENTS:
        value = _moment(written, word)
    elif word in ("SUM", "AVG") and dialect == "duckdb" and call.argument_types[0].base is BaseType.DOUBLE:
        value = _total(written) if word == "SUM" else f"{_total(written)} / {_distinctly(written, 'COUNT')}"
    else:
        value = _distinctly(written, word)
    return f"COALESCE({value}, 0)" if WHEN_EMPTY in call.parameters and word != "corr" else value


def _distinctly(written: Written, word: str, *conditions: str, value: str = "") -> str:
    """The aggregate `word` over the arguments, or over `value`; over each different one when the call says DISTINCT."""
    distinct = "DISTINCT " if written.call.distinct else ""
    return written.of(f"{word}({distinct}{value or ', '.join(written.arguments) or '*'})", *conditions)


def _total(written: Written) -> str:
    """The sum of DOUBLEs in any order: NaN and the infinities decide it, the others are added without loss.

    `fsum` alone gives NaN over an infinity, and where a part of the sum is too large for a DOUBLE though the whole is
    not; so large values are added up by themselves, scaled down.
    """
    x = written.x

    def count(condition: str) -> str:
        return f"{written.of('COUNT(*)', condition)} > 0"

    up, down = (count(f"{x} = CAST('{sign}inf' AS DOUBLE)") for sign in ("", "-"))
    low = _distinctly(written, "fsum", f"ABS({x}) < {LARGE!r}")
    high = _distinctly(written, "fsum", f"isfinite({x})", f"ABS({x}) >= {LARGE!r}", value=f"{x} * {SCALE!r}")
    return (
        f"CASE WHEN {count(f'isnan({x})')} OR ({up} AND {down}) THEN CAST('nan' AS DOUBLE)"
        f" WHEN {up} THEN CAST('inf' AS DOUBLE) WHEN {down} THEN CAST('-inf' AS DOUBLE)"
        f" WHEN {high} IS NULL THEN {low} ELSE ({high} + COALESCE({low}, 0) * {SCALE!r}) / {SCALE!r} END"
    )


# Variances, and what is told of pairs: an engine's own functions over the values that have a square.
#
#     VAR_POP(x)       of 1, 3         1.0
#     VAR_POP(x)       of 1, 1e200     NaN: a square may be no DOUBLE, and DuckDB has an error there
#
# Of larger values, of NaN and of infinities there is no variance (`jobs.functions.aggregates.statistics`); which
# results they leave out, and where there is none for want of rows or of differences, is said here in other words.

_MORE_THAN: Final[Mapping[str, int]] = {
    "VAR_POP": 0,
    "STDDEV_POP": 0,
    **dict.fromkeys(("VARIANCE", "VAR_SAMP", "STDDEV_SAMPLE", "STDDEV_SAMP"), 1),
}
"""The functions of one value; of how many rows there is none."""
_OF_FIRST: Final = ("REGR_AVGY", "REGR_SYY")
_OF_SECOND: Final = ("REGR_AVGX", "REGR_SXX")
_OF_LINES: Final = ("REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2")
_OF_PAIRS: Final = (*_OF_FIRST, *_OF_SECOND, *_OF_LINES, "CORRELATION", "COVAR_POP", "COVAR_SAMP", "REGR_SXY")
_NAN: Final = "CAST('NaN' AS DOUBLE)"

_MOMENTS: Final = (*_MORE_THAN, *_OF_PAIRS)


def _moment(written: Written, word: str) -> str:
    return _of_values(written, word) if written.call.function in _MORE_THAN else _of_pairs(written, word)


def _of_values(written: Written, word: str) -> str:
    x, distinct = written.x, "DISTINCT " if written.call.distinct else ""
    some = f"{written.of(f'COUNT({distinct}{x})')} > {_MORE_THAN[written.call.function]}"
    own = written.of(f"{word}({distinct}{x})", _within(x))
    return f"CASE WHEN {_some_beyond(written, x)} THEN CASE WHEN {some} THEN {_NAN} END ELSE {own} END"


def _of_pairs(written: Written, word: str) -> str:
    first, second = written.arguments
    function, pairs = written.call.function, f"{first} IS NOT NULL AND {second} IS NOT NULL"
    beyond = {each: _some_beyond(written, each, pairs) for each in (first, second)}
    differ = {
        each: f"({beyond[each]} OR {written.of(f'COUNT(DISTINCT {each})', pairs)} > 1)" for each in (first, second)
    }
    read = [first] if function in _OF_FIRST else [second] if function in _OF_SECOND else [first, second]
    own = written.of(f"{word}({first}, {second})", *map(_within, read))
    none = " OR ".join(beyond[each] for each in read)
    value = f"CASE WHEN {none} THEN {_NAN} ELSE {own} END"
    if function == "CORRELATION":
        otherwise = _NAN if WHEN_EMPTY in written.call.parameters else "NULL"
        return f"CASE WHEN {differ[first]} AND {differ[second]} THEN {value} ELSE {otherwise} END"
    if function == "COVAR_SAMP":
        return f"CASE WHEN {written.of('COUNT(*)', pairs)} > 1 THEN {value} END"
    if function == "REGR_R2":
        value = f"CASE WHEN {differ[first]} THEN {value} ELSE 1 END"
    return f"CASE WHEN {differ[second]} THEN {value} END" if function in _OF_LINES else value


def _within(value: str) -> str:
    return f"ABS(CAST({value} AS DOUBLE)) <= {LARGEST!r}"


def _some_beyond(written: Written, value: str, *conditions: str) -> str:
    return f"{written.of('COUNT(*)', *conditions, f'NOT {_within(value)}')} > 0"


def _by_offset(written: Written, *, newest: bool) -> str:
    ignore_nulls, *count = written.call.parameters
    conditions = [written.known] if ignore_nulls else []
    if count:
        listed = written.listed(f"{written.x} ORDER BY {written.at}, {written.x}", *conditions)
        return f"{listed}[-{count[0]}:]" if newest else f"{listed}[:{count[0]}]"
    # arg_max leaves NULL values out, so they travel in a struct.
    place = f"{{'at': {written.at}, 'p': {written.known}, 'v': {written.x}}}"
    found = written.of(f"{'arg_max' if newest else 'arg_min'}({{'v': {written.x}}}, {place})", *conditions)
    return f"({found}).v"


def _collected(written: Written) -> str:
    if written.call.distinct:
        return _collected_set(written)
    return _every(written)


def _collected_set(written: Written) -> str:
    """The distinct values, in the order in which they first occurred."""
    every = _every(written)
    before = f"list_filter(({every})[1:i - 1], lambda w: w IS NOT DISTINCT FROM v)"
    return f"list_filter({every}, lambda v, i: len({before}) = 0)"


def _every(written: Written) -> str:
    return written.listed(f"{written.x} ORDER BY {written.at}, {written.x} NULLS FIRST")


def _extreme_by(written: Written, *, greatest: bool) -> str:
    x, y = written.arguments
    place = f"{{'by': {y}, 'p': {x} IS NOT NULL, 'v': {x}}}"
    found = written.of(f"{'arg_max' if greatest else 'arg_min'}({{'v': {x}}}, {place})", f"{y} IS NOT NULL")
    return f"({found}).v"


def _topk(written: Written) -> str:
    return written.listed(f"{written.x} ORDER BY {written.x} DESC", written.known) + f"[:{written.call.parameters[0]}]"


def _topk_distinct(written: Written) -> str:
    values = written.listed(f"DISTINCT {written.x} ORDER BY {written.x} DESC", written.known)
    return f"{values}[:{written.call.parameters[0]}]"


def _histogram(written: Written) -> str:
    return f"COALESCE({written.of(f'histogram({written.x})', written.known)}, MAP {{}})"


def _count_distinct(written: Written) -> str:
    known = " AND ".join(f"{each} IS NOT NULL" for each in written.arguments)
    return written.of(f"COUNT(DISTINCT ({', '.join(written.arguments)}))", known)


def _attr(written: Written) -> str:
    """ATTR, for which NULL is a value of its own."""
    values = written.of(f"COUNT(DISTINCT {{'v': {written.x}}})")
    return f"CASE WHEN {values} = 1 THEN {written.of(f'any_value({written.x})', written.known)} END"


def _sum_list(written: Written) -> str:
    total = written.of(f"SUM(COALESCE(list_sum({written.x}), 0))", written.known)
    return f"COALESCE({total}, 0)" if WHEN_EMPTY in written.call.parameters else total


def _in_order(written: Written, *conditions: str) -> str:
    value, *by = written.arguments
    way = "DESC NULLS LAST" if written.call.parameters[0] else "ASC NULLS FIRST"
    if any(each is True for each in written.call.parameters[1:]):
        return written.listed(f"DISTINCT {value} ORDER BY {value} {way}", *conditions)
    return written.listed(f"{value} ORDER BY {', '.join(f'{each} {way}' for each in (*by, value))}", *conditions)


def _joined_texts(written: Written) -> str:
    separator = str(written.call.parameters[1]).replace("'", "''")
    texts = _in_order(written, written.known)
    return f"CASE WHEN {written.of('COUNT(*)', written.known)} > 0 THEN array_to_string({texts}, '{separator}') END"


def _mode(written: Written) -> str:
    counts = f"map_entries(COALESCE({written.of(f'histogram({written.x})', written.known)}, MAP {{}}))"
    return f"list_sort(list_transform({counts}, lambda e: {{'n': -CAST(e.value AS BIGINT), 'v': e.key}}))[1].v"


def _percentile(written: Written) -> str:
    fraction, down = written.call.parameters
    if written.call.function == "PERCENTILE_CONT":
        share = f"1 - {fraction}" if down else fraction
        return written.of(f"quantile_cont(CAST({written.x} AS DOUBLE), {share})", written.known)
    values = written.listed(f"{written.x} ORDER BY {written.x} {'DESC' if down else 'ASC'}", written.known)
    count = written.of("COUNT(*)", written.known)
    return f"{values}[CAST(greatest(ceil({fraction} * {count}), 1) AS INT)]"


_DUCKDB: Mapping[str, Callable[[Written], str]] = {
    "COUNT": _count_distinct,
    "COUNT_DISTINCT": _count_distinct,
    "HISTOGRAM": _histogram,
    "LATEST_BY_OFFSET": lambda written: _by_offset(written, newest=True),
    "EARLIEST_BY_OFFSET": lambda written: _by_offset(written, newest=False),
    "COLLECT_LIST": _collected,
    "ARRAY_AGG": _collected,
    "COLLECT_SET": _collected_set,
    "MAX_BY": lambda written: _extreme_by(written, greatest=True),
    "MIN_BY": lambda written: _extreme_by(written, greatest=False),
    "ARRAY_AGG ORDER BY": lambda written: _in_order(written),
    "COLLECT_LIST ORDER BY": lambda written: _in_order(written),
    "FIRST_VALUE ORDER BY": lambda written: f"{_in_order(written)}[1]",
    "LAST_VALUE ORDER BY": lambda written: f"{_in_order(written)}[-1]",
    "FIRST_VALUE": lambda written: _by_offset(written, newest=False),
    "LAST_VALUE": lambda written: _by_offset(written, newest=True),
    "STRING_AGG ORDER BY": _joined_texts,
    **dict.fromkeys(_OF_LINES, lambda written: _moment(written, written.call.function)),
    "REGR_COUNT": lambda written: (
        f"COALESCE({written.of(f'regr_count({written.arguments[0]}, {written.arguments[1]})')}, 0)"
    ),
    "MODE": _mode,
    "PERCENTILE_CONT": _percentile,
    "PERCENTILE_DISC": _percentile,
    "TOPK": _topk,
    "TOPKDISTINCT": _topk_distinct,
    "SUM_LIST": _sum_list,
    "ATTR": _attr,
}
"""DuckDB's text of the functions that it has no single function for."""
