"""The frame of a window, ROWS, RANGE or GROUPS BETWEEN …: read and checked; over numbers where it reaches over time."""

from __future__ import annotations

from math import inf, isfinite
from typing import cast, get_args

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from strandline.jobs.model.stage import ALL_ROWS, Excluded
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.time_clauses import IntervalNode
from strandline.jobs.sql.trees import call

Order = tuple[tuple[exp.Expression, bool, bool], ...]
_ARITHMETIC = (exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul)
_MOST_ROWS = 2**31 - 1
"""The longest way in ROWS: Spark counts them in an INT."""


def frame_text(spec: exp.Expr | None, order: list[SqlType]) -> str | None:
    """The text of a frame; None for SQL's default.

    Args:
        order: the types of ORDER BY.

    Raises:
        InvalidQuery, NotSupported: one of the engines would refuse it at the first refresh.
    """
    if spec is None:
        return None
    kind = spec.args["kind"].upper()
    start = _bound(spec, "start")
    end = _bound(spec, "end") if spec.args.get("end") is not None else "CURRENT ROW"
    frame = f"{kind} BETWEEN {start} AND {end}"
    if (
        ("?" not in frame and _place(start) > _place(end))
        or start == "UNBOUNDED FOLLOWING"
        or end == "UNBOUNDED PRECEDING"
    ):
        raise InvalidQuery(f"the frame {frame} ends before it begins")
    if kind == "GROUPS" and not order:
        raise InvalidQuery("a frame in GROUPS needs an order: OVER (PARTITION BY … ORDER BY …)")
    if kind == "RANGE":
        _check_range(start, end, order)
    elif "?" not in frame and any(
        isfinite(_place(bound)) and abs(_place(bound)) > _MOST_ROWS for bound in (start, end)
    ):
        raise InvalidQuery(f"a frame reaches over {_MOST_ROWS} rows at most: {frame}")
    return frame


def excluded(spec: exp.Expr | None) -> Excluded | None:
    """What EXCLUDE leaves out of a frame."""
    found = spec.args.get("exclude") if spec is not None else None
    text = found.name.upper() if found is not None else "NO OTHERS"
    if text == "NO OTHERS":
        return None
    assert text in get_args(Excluded)
    return cast("Excluded", text)


def is_rare(spec: exp.Expr | None) -> bool:
    """True if not every engine knows such frames."""
    return spec is not None and bool(excluded(spec) or spec.args["kind"].upper() == "GROUPS" or by_columns(spec))


def by_columns(spec: exp.Expr) -> list[str]:
    """Those of its bounds that each row brings."""
    bounds = {which: spec.args.get(which) for which in ("start", "end")}
    return [which for which, each in bounds.items() if isinstance(each, exp.Expr) and each.find(exp.Column)]


def check_kinds(kind: str, reaches: list[Typed], by: list[Typed]) -> None:
    for each in reaches:
        if not each.type.is_numeric or (kind != "RANGE" and each.type not in (t.INT, t.BIGINT)):
            wanted = "a number" if kind == "RANGE" else "a whole number"
            raise TypeMismatch(f"a frame in {kind} reaches over {wanted}, not {sql_of(each.expression)}: {each.type}")
    if kind == "RANGE":
        _check_range("0", "0", [each.type for each in by])


def is_by_distance(spec: exp.Expr | None) -> bool:
    """True for RANGE with a distance."""
    bounds = (spec.args.get(which) for which in ("start", "end")) if spec is not None else ()
    return (
        any(isinstance(each, exp.Literal) for each in bounds)
        and spec is not None
        and spec.args["kind"].upper() == "RANGE"
    )


def without_end(value: Typed) -> exp.Expression:
    """What RANGE measures distances from: a whole number in a type that no distance leads out of."""
    if value.type not in (t.INT, t.BIGINT):
        return value.expression
    return widened(value, SqlType(t.BaseType.DECIMAL, precision=t.MAX_PRECISION)).expression


def ties(frame: str | None, *, ignores: bool) -> bool:
    """True if engines leave open which of several rows that tie is the first or last of the frame with a value."""
    if frame is None:
        return ignores
    return not frame.startswith("ROWS") and (ignores or not frame.endswith(ALL_ROWS))


def _check_range(start: str, end: str, order: list[SqlType]) -> None:
    """Check that Spark and DuckDB can tell which rows are in the RANGE."""
    if "CURRENT ROW" in (start, end) and not order:
        raise InvalidQuery("RANGE … CURRENT ROW needs an order: OVER (PARTITION BY … ORDER BY …)")
    by_distance = any(bound[0].isdigit() for bound in (start, end))
    if by_distance and (len(order) != 1 or not order[0].is_numeric):
        shown = ", ".join(map(str, order)) or "nothing"
        raise NotSupported(
            f"RANGE with a distance is over one number in ORDER BY, not over {shown}",
            hint="over a DATE or TIMESTAMP: RANGE BETWEEN INTERVAL '7' DAY PRECEDING AND CURRENT ROW",
        )


# A frame that reaches over time, as one over microseconds; of a DATE over days, where it reaches over whole days.
#
# ORDER BY at RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW
# ORDER BY UNIX_MICROS(at) RANGE BETWEEN 3600000000 PRECEDING AND CURRENT ROW

_DAY = 86_400_000


def reaches_over_time(spec: exp.Expr) -> bool:
    return any(isinstance(spec.args.get(which), IntervalNode) for which in ("start", "end"))


def by_length(spec: exp.Expr, order: Order, types: list[SqlType]) -> tuple[exp.Expr, Order, list[SqlType]]:
    """The frame, its order and the types of that, over whole numbers.

    Raises:
        InvalidQuery: the frame counts rows.
        NotSupported: it reaches over months, or there is no one DATE or TIMESTAMP in ORDER BY.
    """
    bounds = {which: spec.args[which] for which in ("start", "end") if isinstance(spec.args.get(which), IntervalNode)}
    if spec.args["kind"].upper() != "RANGE":
        raise InvalidQuery(
            "a frame in ROWS reaches over a number of rows, not over an INTERVAL", hint="RANGE BETWEEN …"
        )
    base = types[0].base if len(types) == 1 else None
    if base not in (t.BaseType.DATE, t.BaseType.TIMESTAMP):
        shown = ", ".join(map(str, types)) or "nothing"
        raise NotSupported(f"RANGE over an INTERVAL is over one DATE or TIMESTAMP in ORDER BY, not over {shown}")
    if any(bound.parts[0] for bound in bounds.values()):
        raise NotSupported(
            "RANGE over months is not supported: they have no fixed length", hint="INTERVAL '30' DAY PRECEDING"
        )
    if any(bound.parts[1] < 0 for bound in bounds.values()):
        raise InvalidQuery("a frame reaches over a length from 0", hint="FOLLOWING in place of PRECEDING")
    by_day = base is t.BaseType.DATE and not any(bound.parts[1] % _DAY for bound in bounds.values())
    made = spec.copy()
    for which, bound in bounds.items():
        length = bound.parts[1] // _DAY if by_day else bound.parts[1] * 1000
        made.set(which, exp.Literal.number(length))
    ((by, down, nulls_first),) = order
    value = Typed(by, types[0])
    if by_day:
        return made, ((call("WHOLE_DAYS", by), down, nulls_first),), [t.BIGINT]
    micros = Typed(call("UNIX_MICROS", converted(value, t.TIMESTAMP).expression), t.BIGINT)
    return made, ((without_end(micros), down, nulls_first),), [t.BIGINT]


def _place(bound: str) -> float:
    """The place of a frame's bound: in rows or units after the current one."""
    distance, _, side = bound.partition(" ")
    if distance == "CURRENT":
        return 0
    sign = -1 if side == "PRECEDING" else 1
    return sign * (inf if distance == "UNBOUNDED" else float(distance))


def _bound(spec: exp.Expr, which: str) -> str:
    value, side = spec.args[which], spec.args.get(f"{which}_side")
    value = computed_number(value) if isinstance(value, exp.Expression) else value
    if isinstance(value, exp.Literal) and value.is_int:
        value = value.name
    elif not isinstance(value, str):
        raise InvalidQuery(f"a frame reaches over a whole number of rows, not {sql_of(value)}")
    return f"{value} {side.upper()}" if side else value


def computed_number(number: exp.Expression) -> exp.Expression:
    """A number that is written as a sum or product of constants; any other expression stays."""
    if isinstance(number, exp.Binary | exp.Paren) and all(isinstance(each, _ARITHMETIC) for each in number.walk()):
        from sqlglot.optimizer.simplify import simplify

        found = simplify(number.copy())
        assert isinstance(found, exp.Expression)
        return found
    return number
