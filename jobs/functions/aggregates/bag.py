"""A bag, the accumulator of functions that must know all values: how often each value is in a group.

    Δ (weight)                  bag of the epoch              merged with (p 2), (q 1)
    p (+1), q (−1), r (+1)      (p 1), (q −1), (r 1)          (p 3), (r 1)

It is linear: a retraction is added as an insertion is, with the opposite sign, so the counts never need the group's
rows again. It holds every different value of a group in one row of the stage's table, and merging sorts it: good for
some ten thousand different values in a group, not for millions.

An item is (v, n, at): the value, how often it is there, and its place in the order of events. A bag is either *by
place* (a value that came in two events is two items) or by value alone; `at` is then the first of its places, for
those who ask for places at all.
"""

from __future__ import annotations

from strandline.jobs.engines.comparable import comparable
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import ORDER_TYPE, Changes
from strandline.jobs.model.types import BIGINT, SqlType, array, struct


def bag_type(sql_type: SqlType) -> SqlType:
    """The type of a bag of such values."""
    return array(_item_type(sql_type))


def bag_of(
    engine: Engine,
    changes: Changes,
    value: str,
    sql_type: SqlType,
    *present: str,
    at: str | None = None,
    by_place: bool,
) -> str:
    """Aggregate: the bag of some changes; counts in it may be zero or less.

    Args:
        present: conditions on the changes that count.
        at: the order of events; None where places do not matter.
    """
    place = at or engine.cast("NULL", ORDER_TYPE)
    item = engine.struct([("v", value), ("n", engine.cast(changes.weight, BIGINT)), ("at", place)])
    items = f"COALESCE({changes.only(engine.items(item), *present)}, {engine.empty(bag_type(sql_type))})"
    return _folded(engine, items, sql_type, by_place=by_place)


def merge_bags(engine: Engine, old: str, new: str, sql_type: SqlType, *, by_place: bool) -> str:
    """Both bags as one, without the values whose count is zero; `old` may be NULL."""
    both = engine.concat(f"COALESCE({old}, {engine.empty(bag_type(sql_type))})", new)
    folded = _folded(engine, both, sql_type, by_place=by_place)
    return engine.keep(folded, "__each", f"{engine.field('__each', 'n')} <> 0")


def values_in(engine: Engine, bag: str, sql_type: SqlType) -> str:
    """The different values in the order of their places, then of themselves; empty for a bag that is NULL."""
    key = _key(engine, "__each", sql_type, by_place=True)
    items = f"COALESCE({bag}, {engine.empty(bag_type(sql_type))})"
    return engine.pluck(engine.sort_by(items, "__each", key, _item_type(sql_type)), "v")


def _item_type(sql_type: SqlType) -> SqlType:
    return struct(("v", sql_type), ("n", BIGINT), ("at", ORDER_TYPE))


def _key(engine: Engine, item: str, sql_type: SqlType, *, by_place: bool) -> str:
    value = comparable(engine, engine.field(item, "v"), sql_type)
    return engine.struct([("at", engine.field(item, "at")), ("v", value)]) if by_place else value


def _folded(engine: Engine, items: str, sql_type: SqlType, *, by_place: bool) -> str:
    """One item per value (and place), in their order: sorted, then cut where a run of equal ones starts."""
    key = _key(engine, "__each", sql_type, by_place=by_place)
    ordered = engine.sort_by(items, "__each", key, _item_type(sql_type))
    keys = engine.transform("__all", "__each", key)
    this, before = engine.get("__keys", "__place"), engine.get("__keys", "__place - 1")
    starts = engine.keep(engine.places("__keys"), "__place", f"__place = 1 OR {this} IS DISTINCT FROM {before}")
    start, end = engine.get("__starts", "__nr"), engine.get("__starts", "__nr + 1")
    run = engine.slice("__all", start, f"(COALESCE({end}, {engine.size('__all')} + 1) - {start})")
    sums = engine.transform(
        engine.places("__starts"), "__nr", engine.let(run, "__run", _sum_of(engine, "__run", by_place=by_place))
    )
    return engine.let(ordered, "__all", engine.let(engine.let(keys, "__keys", starts), "__starts", sums))


def _sum_of(engine: Engine, run: str, *, by_place: bool) -> str:
    """The item that stands for a run of equal ones.

    By value alone, its place is the first place of an insertion. A retraction gives none, even of a row that was
    inserted in the same epoch: a function that uses places must find out by itself that the first one is gone.
    """
    one = engine.get(run, "1")
    inserted = engine.keep(run, "__each", f"{engine.field('__each', 'n')} > 0")
    place = engine.field(one, "at") if by_place else engine.least(engine.pluck(inserted, "at"))
    count = engine.total(engine.pluck(run, "n"), BIGINT)
    return engine.struct([("v", engine.field(one, "v")), ("n", count), ("at", place)])
