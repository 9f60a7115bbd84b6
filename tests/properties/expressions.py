"""Random scalar expressions, conditions and aggregate calls, as SQL text over the columns of some relations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.properties.picker import Picker
from tests.properties.sources import COMMON

NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class Name:
    """A column: as it is written in an expression, and its type."""

    text: str
    type: str

    @property
    def is_number(self) -> bool:
        return self.type.startswith(NUMBERS)

    @property
    def is_simple(self) -> bool:
        """Whether its values can be compared, ordered and grouped by."""
        return not self.type.startswith(("ARRAY", "MAP", "STRUCT", "BYTES"))


def literal(value: Any, kind: str) -> str:
    """A value as it is written in a statement."""
    match value:
        case None:
            return f"CAST(NULL AS {kind})"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            return f"CAST('{value:%Y-%m-%dT%H:%M:%S}' AS TIMESTAMP)"
        case dt.date():
            return f"CAST('{value:%Y-%m-%d}' AS DATE)"
        case float():
            return f"CAST({value} AS DOUBLE)"
        case Decimal():
            return f"CAST({value} AS {kind})"
        case list():
            return f"ARRAY[{', '.join(literal(each, 'INT') for each in value)}]"
        case _:
            return str(value)


def scalar(pick: Picker, names: Sequence[Name], depth: int = 1) -> Name:
    """An expression over the columns: a column most of the time."""
    name = pick.one(names)
    if depth == 0 or pick.chance(60):
        return name
    options: list[Callable[[], Name]] = [lambda: _case(pick, names, name), lambda: _coalesce(name)]
    if name.type in ("INT", "BIGINT"):
        options += [lambda: _arithmetic(pick, name), lambda: Name(f"CAST({name.text} AS VARCHAR)", "VARCHAR")]
        options.append(lambda: Name(f"CAST({name.text} AS DOUBLE)", "DOUBLE"))
    if name.type == "VARCHAR":
        options += [lambda: Name(f"UCASE({name.text})", "VARCHAR"), lambda: Name(f"LEN({name.text})", "INT")]
        options.append(lambda: Name(f"{name.text} || 'x'", "VARCHAR"))
    return pick.one(options)()


def condition(pick: Picker, names: Sequence[Name], depth: int = 2) -> str:
    """A condition over the columns."""
    if depth and pick.chance(30):
        left, right = condition(pick, names, depth - 1), condition(pick, names, depth - 1)
        return pick.one([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"])
    usable = [name for name in names if name.is_simple]
    if not usable:
        return pick.one([f"{names[0].text} IS NULL", f"{names[0].text} IS NOT NULL"])
    name = pick.one(usable)
    if pick.chance(15):
        return f"{name.text} IS {pick.one(['', 'NOT '])}NULL"
    if name.type == "BOOLEAN":
        return pick.one([name.text, f"NOT {name.text}"])
    value = _constant(pick, name.type)
    if name.type in ("INT", "BIGINT", "VARCHAR") and pick.chance(25):
        other = _constant(pick, name.type)
        return pick.one(
            [
                f"{name.text} IN ({value}, {other})",
                f"{name.text} NOT IN ({value}, {other})",
                f"{name.text} BETWEEN {value} AND {other}",
            ]
        )
    same = [other for other in usable if other.type == name.type and other != name]
    right = pick.one(same).text if same and pick.chance(25) else value
    return f"{name.text} {pick.one(['=', '<>', '<', '<=', '>', '>='])} {right}"


def aggregate(pick: Picker, names: Sequence[Name], *, ordered: bool) -> str:
    """A call of an aggregate function.

    Args:
        ordered: the rows have a place in the order of events, so that functions by offset can be asked for.
    """
    text = _call(pick, names, ordered)
    return f"{text} FILTER (WHERE {condition(pick, names, 0)})" if pick.chance(15) else text


def _call(pick: Picker, names: Sequence[Name], ordered: bool) -> str:
    simple = [name for name in names if name.is_simple]
    lists = [name for name in names if name.type in ("ARRAY<INT>", "ARRAY<BIGINT>")]
    if lists and pick.chance(20):
        return f"SUM_LIST({pick.one(lists).text})"
    if not simple or pick.chance(15):
        return "COUNT(*)"
    name = pick.one(simple)
    options = ["COUNT({})", "COUNT(DISTINCT {})", "COUNT_DISTINCT({})", "COLLECT_SET({})"]
    if name.type != "BOOLEAN":
        options += ["MIN({})", "MAX({})", "MIN({})", "MAX({})"]
    if name.is_number:
        options += [f"SUM({added(name)})"] * 2 + [f"SUM(DISTINCT {added(name)})"]
        options += ["AVG({})", "TOPK({}, 2)", "TOPKDISTINCT({}, 2)"]
        options += [f"STDDEV_SAMPLE({_moderate(name)})"]
    if name.type == "VARCHAR":
        options += ["HISTOGRAM({})"] * 2
    by = pick.one(simple)
    options += _in_order(name, by.text, pick.one(["", " DESC"]))
    if by.type != "BOOLEAN":
        options += [f"MAX_BY({{}}, {by.text})", f"MIN_BY({{}}, {by.text})"]
    if name.is_number and by.is_number:
        options.append(f"CORRELATION({_moderate(name)}, {_moderate(by)})")
    options.append("ATTR({})")
    if ordered:
        options += ["LATEST_BY_OFFSET({})", "EARLIEST_BY_OFFSET({})", "LATEST_BY_OFFSET({}, 2)", "COLLECT_LIST({})"]
        options += ["EARLIEST_BY_OFFSET({}, 2, FALSE)", "LATEST_BY_OFFSET({}, FALSE)"]
    return pick.one(options).format(name.text)


def _in_order(name: Name, by: str, down: str) -> list[str]:
    """Calls over all values of a group."""
    options = ["MODE({})", f"ARRAY_AGG({{}} ORDER BY {by}{down})", "ARRAY_AGG(DISTINCT {0} ORDER BY {0})"]
    options += [f"FIRST_VALUE({{}} ORDER BY {by}{down})", f"LAST_VALUE({{}} ORDER BY {by}{down})"]
    if name.type == "VARCHAR":
        options += [f"STRING_AGG({{}}, '|' ORDER BY {by}{down})"] * 2
    if name.type != "BOOLEAN":
        options += [f"PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY {{}}{down})"]
    if name.is_number:
        options += ["MEDIAN({})", f"PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY {{}}{down})"]
    return options


def added(name: Name) -> str:
    """A number whose sums have a value: that of two BIGINTs may not be one."""
    return "CAST({} AS DECIMAL(38, 0))" if name.type == "BIGINT" else "{}"


def _moderate(name: Name) -> str:
    """A number, without the values whose squares are no longer numbers."""
    return f"CASE WHEN {name.text} BETWEEN -100 AND 100 THEN {name.text} END"


def _case(pick: Picker, names: Sequence[Name], name: Name) -> Name:
    other = pick.one([each for each in names if each.type == name.type])
    when = condition(pick, names, 0)
    return Name(f"CASE WHEN {when} THEN {name.text} ELSE {other.text} END", name.type)


def _coalesce(name: Name) -> Name:
    if name.type not in COMMON or not name.is_simple:
        return name
    return Name(f"COALESCE({name.text}, {literal(COMMON[name.type][1], name.type)})", name.type)


def _arithmetic(pick: Picker, name: Name) -> Name:
    """A sum or product, in a type that holds it at the ends of the column's range too."""
    wide = "BIGINT" if name.type == "INT" else "DECIMAL(20, 0)"
    return Name(f"CAST({name.text} AS {wide}) {pick.one(['+', '-', '*'])} {pick.count(1, 3)}", "")


def _constant(pick: Picker, kind: str) -> str:
    if kind not in COMMON:
        return "1" if kind.startswith(NUMBERS) else f"CAST(NULL AS {kind})"
    return literal(pick.one(COMMON[kind][1:]), kind)
