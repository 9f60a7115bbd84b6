"""Aggregates of other dialects that are made of several of ours.

    SEM(x) FILTER (WHERE p) OVER w    STDDEV_POP(x) FILTER (WHERE p) OVER w / SQRT(NULLIF(COUNT(x) FILTER …, 0))

`COMPOSED` is the list: head and body, both text, as `jobs.query.expressions.other_dialects` has scalar functions. What
stands around a call (DISTINCT, FILTER, OVER) stands around each aggregate of its body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from strandline.jobs.functions.aggregates.collections import ORDERED
from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.functions.python import function_at
from strandline.jobs.query.expressions.other_dialects import closed, tree_of
from strandline.jobs.sql.trees import where_both

_LIST: Final = "ARRAY_AGG(CAST(x AS DOUBLE) ORDER BY CAST(x AS DOUBLE))"
"""The values in an order, so that what is computed of them is the same to the last digit."""

COMPOSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SEM(x)": "STDDEV_POP(x) / SQRT(NULLIF(COUNT(x), 0))",
        **{f"{name}(x)": "EXP(AVG(LN(x)))" for name in ("GEOMEAN", "GEOMETRIC_MEAN")},
        **{
            f"{name}(x, y)": "SUM(CAST(x AS DOUBLE) * CAST(y AS DOUBLE))"
            " / NULLIF(SUM(CASE WHEN x IS NOT NULL THEN CAST(y AS DOUBLE) ELSE 0e0 END), 0e0)"
            for name in ("WEIGHTED_AVG", "WAVG")
        },
        "PRODUCT(x)": f"LIST_PRODUCT({_LIST})",
        "SKEWNESS(x)": f"LIST_SKEWNESS({_LIST})",
        "KURTOSIS(x)": f"LIST_KURTOSIS({_LIST})",
        "KURTOSIS_POP(x)": f"LIST_KURTOSIS_POP({_LIST})",
        "MAD(x)": f"LIST_MAD({_LIST})",
        "ENTROPY(x)": "CASE WHEN COUNT(x) > 0 THEN LOG(2e0, COUNT(x)) - LIST_SUM(TRANSFORM("
        "ARRAY_SORT(MAP_VALUES(HISTOGRAM(x))), __c => __c * LOG(2e0, __c))) / COUNT(x) ELSE 0e0 END",
        "MIN(x, y)": "CASE WHEN COUNT(x) > 0 THEN"
        " ARRAY_SLICE(ARRAY_AGG(x ORDER BY x) FILTER (WHERE x IS NOT NULL), 1, y) END",
        "MAX(x, y)": "CASE WHEN COUNT(x) > 0 THEN"
        " ARRAY_SLICE(ARRAY_AGG(x ORDER BY x DESC) FILTER (WHERE x IS NOT NULL), 1, y) END",
        **{
            f"{name}(x, y, z)": f"CASE WHEN COUNT(*) FILTER (WHERE {there}) > 0 THEN"
            f" ARRAY_SLICE(ARRAY_AGG(x ORDER BY y{way}) FILTER (WHERE {there}), 1, z) END"
            for names, there in (
                (("ARG_{}", "ARG{}"), "x IS NOT NULL AND y IS NOT NULL"),
                (("{}_BY",), "y IS NOT NULL"),
            )
            for which, way in (("MIN", ""), ("MAX", " DESC"))
            for name in (each.format(which) for each in names)
        },
    }
)
"""{a call of the aggregate: what it means}."""

_OF_DISTINCT: Final = "ARRAY_AGG(DISTINCT CAST(x AS DOUBLE) ORDER BY CAST(x AS DOUBLE)) FILTER (WHERE x IS NOT NULL)"
_VARIANCE: Final = {
    "POP": "CASE WHEN LIST_COUNT({a}) > 0 THEN LIST_MOMENT2({a}) END",
    "SAMP": "CASE WHEN LIST_COUNT({a}) > 1"
    " THEN LIST_MOMENT2({a}) * LIST_COUNT({a}) / (CAST(LIST_COUNT({a}) AS DOUBLE) - 1) END",
}
DISTINCT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MEDIAN": f"LIST_MEDIAN({_OF_DISTINCT})",
        "COUNT_IF": "COUNT(DISTINCT CASE WHEN x THEN TRUE END)",
        **{
            f"{name}{of}": form.format(_VARIANCE[which].format(a=_OF_DISTINCT))
            for name, form in (("VAR", "{}"), ("STDDEV", "SQRT({})"))
            for of, which in (("_POP", "POP"), ("_SAMP", "SAMP"))
        },
        "VARIANCE": _VARIANCE["SAMP"].format(a=_OF_DISTINCT),
        **{name: f"SQRT({_VARIANCE['SAMP'].format(a=_OF_DISTINCT)})" for name in ("STDDEV", "STDDEV_SAMPLE")},
    }
)
"""{an aggregate of ours whose state keeps no values: what it means of x, each value once}."""

NAMES: Final = frozenset(head.partition("(")[0] for head in COMPOSED) - frozenset(FUNCTIONS)
"""Those that are no aggregates of ours by another number of arguments."""
_HEAD: Final = re.compile(r"(\w+)\((.*)\)")
_LISTED: Final = ("QUANTILE_CONT", "QUANTILE_DISC", "QUANTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_QUANTILE")


@cache
def _bodies() -> Mapping[tuple[str, int], tuple[tuple[str, ...], exp.Expr]]:
    """What a call means, by name and number of arguments: the arguments' names, and the tree."""
    found: dict[tuple[str, int], tuple[tuple[str, ...], exp.Expr]] = {}
    for head, body in COMPOSED.items():
        matched = _HEAD.fullmatch(head)
        assert matched is not None
        names = tuple(matched[2].split(", "))
        found[matched[1], len(names)] = names, tree_of(body)
    return found


def composed(node: exp.Expression) -> exp.Expression | None:
    """What a call of such an aggregate means, with all that stands around it; None for any other node."""
    call: exp.Expr = node
    while isinstance(call, exp.Window | exp.Filter):
        call = call.this
    meant = _of_list(call, call.this) if isinstance(call, exp.WithinGroup) else _meant(call)
    if meant is None:
        return None
    found = meant.transform(lambda inner: _around(inner, node) if _is_aggregate(inner) else inner)
    assert isinstance(found, exp.Expression)
    return found


def _meant(call: exp.Expr) -> exp.Expr | None:
    if not isinstance(call, exp.Anonymous) or function_at(call) is not None:
        return None
    written, distinct = call.expressions, False
    if written and isinstance(written[0], exp.Distinct):
        written, distinct = [*written[0].expressions, *written[1:]], True
    if distinct and len(written) == 1 and call.name in DISTINCT:
        return _with_values(tree_of(DISTINCT[call.name]), {"x": written[0]})
    if call.name in _LISTED and len(written) == 2:
        return _of_list(call, written[1])
    names, body = _bodies().get((call.name, len(written)), ((), None))
    if body is None or any(isinstance(each, exp.Order | exp.Star) for each in written):
        return None
    made = _with_values(body, dict(zip(names, written, strict=True)))
    for inner in list(made.find_all(exp.Anonymous)) if distinct else ():
        if _is_aggregate(inner) and not isinstance(inner.expressions[0], exp.Star):
            _make_distinct(inner)
    return made


def _with_values(body: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    return body.copy().transform(
        lambda inner: (
            closed(values[inner.name].copy()) if isinstance(inner, exp.Column) and inner.name in values else inner
        )
    )


def _make_distinct(call: exp.Anonymous) -> None:
    first = call.expressions[0]
    value = first.this if isinstance(first, exp.Order) else first
    value.replace(exp.Distinct(expressions=[value.copy()]))


def _of_list(call: exp.Expr, fractions: exp.Expr) -> exp.Expr | None:
    """QUANTILE_CONT(x, [0.25, 0.75]): an ARRAY with one for each; NULL over no value."""
    inner = call.this if isinstance(call, exp.WithinGroup) else call
    if isinstance(call, exp.WithinGroup):
        if not isinstance(inner, exp.Anonymous) or len(inner.expressions) != 1 or len(call.expression.expressions) != 1:
            return None
        fractions, value = inner.expressions[0], call.expression.expressions[0].this
    else:
        value = call.expressions[0]
    if not isinstance(fractions, exp.Array) or not fractions.expressions:
        return None
    each = []
    for fraction in fractions.expressions:
        made = call.copy()
        (made.this if isinstance(made, exp.WithinGroup) else made).expressions[-1].replace(fraction.copy())
        each.append(made)
    some = exp.GT(this=exp.Anonymous(this="COUNT", expressions=[value.copy()]), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=exp.Array(expressions=each))])


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    if not isinstance(node, exp.Anonymous):
        return False
    return node.name in FUNCTIONS or f"{node.name}{ORDERED}" in FUNCTIONS or node.name in _LISTED


def _around(aggregate: exp.Expr, node: exp.Expr) -> exp.Expr:
    """An aggregate of a body, perhaps with a FILTER of its own, with what stands around the call `node` ends in."""
    if isinstance(node, exp.Window):
        made = node.copy()
        made.set("this", _around(aggregate, node.this))
        return made
    if not isinstance(node, exp.Filter):
        return aggregate
    condition = node.expression.this.copy()
    if not isinstance(aggregate, exp.Filter):
        return exp.Filter(this=aggregate, expression=exp.Where(this=condition))
    return exp.Filter(this=aggregate.this, expression=where_both(condition, aggregate.expression.this))
