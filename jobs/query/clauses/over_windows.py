"""The windows of functions OVER: the frame of each, and a query for each PARTITION BY where they differ.

A frame, ROWS, RANGE or GROUPS BETWEEN …, is read and checked; where it reaches over time, it becomes one over numbers.

Functions OVER windows with different PARTITION BYs become a query for each, one around the other:

SELECT id, RANK() OVER (PARTITION BY a ORDER BY v) AS x, SUM(v) OVER (PARTITION BY b) AS y FROM t QUALIFY x < 3

    __over   SELECT t.id AS __o0, t.v AS __o1, t.b AS __o2, RANK() … AS __w0 FROM t         partition  t.a
    outside  SELECT __over.__o0 AS id, __over.__w0 AS x, __w1 AS y FROM __over QUALIFY …    partition  __over.__o2

A stage computes the partitions again that a change touches, so it has one PARTITION BY. The columns that tell the
rows apart come along, so that rows that tie are ordered alike outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import cast, get_args

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.scalars.domains import REACH
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from strandline.jobs.model.stage import ALL_ROWS, AnalyticCall, Excluded, Output
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import ReadableColumns, from_outside, places_in, row_identity
from strandline.jobs.query.logical import Block, From
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.time_clauses import IntervalNode
from strandline.jobs.sql.trees import Place, call, columns_in, replaced, replaced_call

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


_ALIAS = "__over"
_EARLY = "__early"


@dataclass(frozen=True)
class Partition:
    """The calls of one query that share a PARTITION BY.

    Attributes:
        begin, end: the places of its expressions among those of all partitions.
        calls: the names of the calls.
    """

    begin: int
    end: int
    calls: frozenset[str]


def partitions_apart(block: Block, partitions: Sequence[Partition]) -> Block:
    """Split a block into nested queries with one PARTITION BY each; a block with one stays as it is.

    Args:
        block: its `partition` holds the expressions of all partitions, one after the other.

    Raises:
        NotSupported: it is a subquery that reads the query around it.
    """
    if len(partitions) < 2:
        return block
    if any(from_outside(node) for node in (block.where, *(each.on for each in block.inputs)) if node is not None):
        raise NotSupported(
            "several PARTITION BY in a subquery that reads the query around it are not maintained",
            hint="put the functions over one of them into a subquery in FROM",
        )
    first, *others = partitions
    block, early = _early(block, first)
    rest = tuple(call for call in block.analytic if call.name not in first.calls)
    inner, names = _inner(block, first, rest, early)
    outer = Block(
        inputs=(From(_ALIAS, inner),),
        where=None,
        outputs=tuple(replace(each, expression=replaced(each.expression, names)) for each in block.outputs),
        partition=tuple(replaced(each, names) for each in block.partition[first.end :]),
        analytic=tuple(replaced_call(each, names) for each in rest),
        qualify=replaced(block.qualify, names) if block.qualify is not None else None,
        distinct=block.distinct,
        key=block.key,
        unseen_key=block.unseen_key,
    )
    moved = [replace(each, begin=each.begin - first.end, end=each.end - first.end) for each in others]
    return partitions_apart(outer, moved)


def _early(block: Block, first: Partition) -> tuple[Block, dict[Place, Output]]:
    """The block with what can fail of a row by itself as columns, and those columns: the query of the first partition
    computes them, so that a row on which one fails is in no window."""
    calls, scope = {call.name for call in block.analytic}, ReadableColumns(block)
    found: dict[str, Output] = {}

    def read(node: exp.Expression, sql_type: SqlType | None = None) -> exp.Expression:
        # The bound of a frame stands in its call alone.
        if (isinstance(node, exp.Anonymous) and node.name == REACH) or not can_fail(node):
            return node
        if any(not each.table and each.name in calls for each in columns_in(node)):
            return node
        made = Output(f"__e{len(found)}", node, sql_type or infer(node, scope).type)
        return column(found.setdefault(sql_of(node), made).name, _EARLY)

    def read_call(call: AnalyticCall) -> AnalyticCall:
        if call.name in first.calls:
            return call
        order = tuple((read(by), down, nulls_first) for by, down, nulls_first in call.order)
        return replace(call, arguments=tuple(map(read, call.arguments)), order=order)

    made = replace(
        block,
        outputs=tuple(replace(each, expression=read(each.expression, each.type)) for each in block.outputs),
        partition=(*block.partition[: first.end], *map(read, block.partition[first.end :])),
        analytic=tuple(map(read_call, block.analytic)),
    )
    return made, {(_EARLY, each.name): each for each in found.values()}


def _inner(
    block: Block, first: Partition, rest: Sequence[AnalyticCall], early: Mapping[Place, Output]
) -> tuple[Block, dict[Place, exp.Expression]]:
    """The query of the first partition, and where the outer one finds each column that it reads.

    Args:
        early: what it computes for the others.
    """
    own = tuple(call for call in block.analytic if call.name in first.calls)
    row = row_identity(block)
    trees = [*(each.expression for each in block.outputs), *block.partition[first.end :], *row]
    trees += [node for call in rest for node in (*call.arguments, *(by for by, _, _ in call.order))]
    trees += [block.qualify] if block.qualify is not None else []
    scope = ReadableColumns(block)
    made = {("", call.name): Output(call.name, column(call.name), call.type) for call in own} | dict(early)
    later = {("", call.name) for call in rest}
    for place in places_in(trees):
        if place not in made and place not in later:
            found = column(place[1], place[0] or None)
            made[place] = Output(f"__o{len(made) - len(own) - len(early)}", found, scope.resolve(found).type)
    inner = replace(
        block,
        outputs=tuple(made.values()),
        partition=block.partition[: first.end],
        analytic=own,
        qualify=None,
        distinct=False,
        key=tuple(made[place].name for place in places_in(row)),
        unseen_key="",
    )
    return inner, {place: column(output.name, _ALIAS) for place, output in made.items()}
