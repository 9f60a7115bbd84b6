"""Random windows: of time, after FROM, and of rows, after OVER."""

from __future__ import annotations

from collections.abc import Sequence

from tests.properties.expressions import Name, added
from tests.properties.picker import Picker

_FRAMES = (
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "RANGE UNBOUNDED PRECEDING EXCLUDE GROUP",
    "ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE TIES",
    "GROUPS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
)

_FRAMED = ("SUM", "COUNT", "MAX", "FIRST_VALUE", "LAST_VALUE", "ARRAY_AGG", "COLLECT_SET", "TOPK", "MEDIAN")


def time_window(pick: Picker) -> tuple[str, str]:
    """The WINDOW clause, and CHANGES or FINAL for after EMIT."""
    grace = pick.one(["", ", GRACE PERIOD 0 SECONDS", ", GRACE PERIOD 10 SECONDS", ", GRACE PERIOD 1 DAY"])
    kind = pick.one(["TUMBLING (SIZE 5 SECONDS", "HOPPING (SIZE 6 SECONDS, ADVANCE BY 2 SECONDS", "SESSION (3 SECONDS"])
    return f"WINDOW {kind}{grace})", pick.one(["CHANGES", "CHANGES", "CHANGES", "FINAL"])


def analytic_call(pick: Picker, names: Sequence[Name], functions: Sequence[str] | None, *, exact: bool) -> str:
    """A function OVER a partition.

    Args:
        functions: those to choose from; None for all.
        exact: order by every column: what breaks ties between the rows is not known.
    """
    simple = [name for name in names if name.is_simple]
    if not simple:
        return "COUNT(*) OVER ()"
    value = pick.one(simple)
    function = pick.one(functions) if functions else pick.one(_functions(value))
    partition = [name.text for name in pick.some(simple, 0, 1)]
    order = [f"{name.text}{pick.one(['', ' DESC'])}" for name in pick.some(simple, 1, 2)]
    if exact:
        order += [name.text for name in simple]
    frame = ""
    if functions is None and function.split("(")[0] in _FRAMED:
        frame = f" {pick.one(_FRAMES)}" if pick.chance(40) else ""
    written = function if "(" in function else f"{function}()"
    by = f"PARTITION BY {', '.join(partition)} " if partition else ""
    return f"{written} OVER ({by}ORDER BY {', '.join(order)}{frame})"


def _functions(value: Name) -> list[str]:
    found = ["ROW_NUMBER", "RANK", "DENSE_RANK", f"LAG({value.text})", f"LEAD({value.text}, 2)", "COUNT(*)"]
    found += [f"FIRST_VALUE({value.text})", f"LAST_VALUE({value.text})"]
    found += [f"ARRAY_AGG({value.text})", f"COLLECT_SET({value.text})"]
    if value.type != "BOOLEAN":
        found += [f"MAX({value.text})", f"TOPK({value.text}, 2)"]
    if value.is_number:
        found += [f"SUM({added(value).format(value.text)})", f"MEDIAN({value.text})"]
    return found
