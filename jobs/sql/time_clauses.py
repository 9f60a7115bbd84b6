"""The clauses about time, as nodes and parser rules: WINDOW … after FROM, WITHIN … before ON.

    WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES)              TimeWindowNode
    WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES, RETENTION 1 DAY)
    WINDOW SESSION (5 MINUTES, GRACE PERIOD 1 HOUR)
    JOIN r WITHIN 1 HOUR GRACE PERIOD 5 MINUTES ON …                    WithinNode
    JOIN r WITHIN (1 HOUR, 2 HOURS) ON …

Lengths are milliseconds from here on. The parts of a WINDOW may come in any order.

INTERVAL: a length of time as a node of the tree, and its text.

    INTERVAL '1' DAY, INTERVAL 90 MINUTES, INTERVAL '1 day 2 hours', INTERVAL '-3 months', INTERVAL 1 DAY 2 HOURS
    INTERVAL '1 02:03:04' DAY TO SECOND, INTERVAL '1-2' YEAR TO MONTH, INTERVAL '1d 2h', INTERVAL 'P1DT2H'

A length is months and milliseconds apart: a month has no length of its own. It is no value of a column: it is added to
and subtracted from dates and times, and gives their functions a length.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

from sqlglot import exp, generator, parser
from sqlglot.tokenizer_core import TokenType

_SECOND = 1000
_DAY = 24 * 60 * 60 * _SECOND
# Lengths without a calendar: a YEAR is 365 days, and a MONTH has no length.
UNITS = {
    "MILLISECOND": 1,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 60 * 60 * _SECOND,
    "DAY": _DAY,
    "WEEK": 7 * _DAY,
    "YEAR": 365 * _DAY,
}
"""Milliseconds of each unit of a window's length."""
_WINDOW_TYPES = ("TUMBLING", "HOPPING", "SESSION")
LONGEST: Final = 1 << 61
"""Milliseconds, 73 million years: three of them and any two times add up to a BIGINT."""

_UNIT_WORDS = {word: length for unit, length in UNITS.items() for word in (unit, f"{unit}S")}


class TimeWindowNode(exp.Expression):
    """WINDOW …: `this` is a Var (TUMBLING, HOPPING, SESSION), the others numbers of milliseconds."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "size": True,
        "advance": False,
        "grace": False,
        "retention": False,
    }


class WithinNode(exp.Expression):
    """WITHIN …: the longest time by which a right row may be before or after a left one, and the grace."""

    arg_types: ClassVar[dict[str, bool]] = {"before": True, "after": True, "grace": False}


def milliseconds(node: exp.Expr, part: str) -> int | None:
    """The length in a part of one of the nodes, in milliseconds; None when it was not given."""
    found = node.args.get(part)
    return int(found.name) if isinstance(found, exp.Literal) else None


class TimeClauses(parser.Parser):
    """The rules; each moves the parser past the clause, or raises where the text is wrong."""

    def _parse_time_window(self) -> tuple[str, Any]:
        """WINDOW …, into the argument `time_window` of the SELECT; `WINDOW w AS (…)` into `windows`."""
        self._match(TokenType.WINDOW)
        start = self._curr
        if self._next and self._next.text.upper() in _WINDOW_TYPES:
            self._advance()  # ksqlDB takes a name for the window, and has no use for it
        if self._next and self._next.token_type == TokenType.ALIAS:
            return "windows", self._parse_csv(self._parse_named_window)
        if not self._match_texts(_WINDOW_TYPES):
            self.raise_error("expected TUMBLING, HOPPING or SESSION after WINDOW")
        window_type = self._prev.text.upper()
        if not self._match(TokenType.L_PAREN):
            self.raise_error(f"expected ( after {window_type}")
        given: dict[str, exp.Expression] = {}
        while True:
            name, length = self._window_part(window_type)
            if name in given:
                self.raise_error(f"{name.upper()} is given twice", self._prev)
            given[name] = length
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self.raise_error(f"expected , or ) in {window_type} (…)")
        wanted = ("size", "advance") if window_type == "HOPPING" else ("size",)
        missing = next((part for part in wanted if part not in given), None)
        if missing:
            shown = "SIZE" if missing == "size" else "ADVANCE BY"
            self.raise_error(f"{window_type} needs {'its gap' if window_type == 'SESSION' else shown}", start)
        return "time_window", self.expression(TimeWindowNode(this=exp.var(window_type), **given))

    def _window_part(self, window_type: str) -> tuple[str, exp.Expression]:
        if self._match_text_seq("GRACE", "PERIOD"):
            return "grace", self._length(zero=True)
        if self._match_text_seq("RETENTION"):
            return "retention", self._length()
        if window_type == "HOPPING" and self._match_text_seq("ADVANCE", "BY"):
            return "advance", self._length()
        if window_type != "SESSION" and not self._match_text_seq("SIZE"):
            parts = "SIZE, ADVANCE BY" if window_type == "HOPPING" else "SIZE"
            self.raise_error(f"expected {parts}, RETENTION or GRACE PERIOD")
        return "size", self._length()

    def _within(self) -> exp.Expression:
        """The lengths after WITHIN."""
        if self._match(TokenType.L_PAREN):
            before = self._length(zero=True)
            if not self._match(TokenType.COMMA):
                self.raise_error("expected a comma: WITHIN (before, after)")
            after = self._length(zero=True)
            if not self._match(TokenType.R_PAREN):
                self.raise_error("expected ) after WITHIN (before, after")
        else:
            before = self._length(zero=True)
            after = before.copy()
        grace = self._length(zero=True) if self._match_text_seq("GRACE", "PERIOD") else None
        return self.expression(WithinNode(before=before, after=after, grace=grace))

    def _length(self, *, zero: bool = False) -> exp.Expression:
        """`5 MINUTES`, in milliseconds."""
        number = self._curr
        if not self._match(TokenType.NUMBER) or not number.text.isdigit():
            self.raise_error("expected a length of time, such as 5 MINUTES", number)
        if int(number.text) == 0 and not zero:
            self.raise_error("the length must be more than 0", number)
        if not self._match_texts(_UNIT_WORDS):
            self.raise_error(f"expected a unit of time: {', '.join(f'{unit}S' for unit in UNITS)}")
        length = int(number.text) * _UNIT_WORDS[self._prev.text.upper()]
        if length > LONGEST:
            self.raise_error(f"the length is more than {LONGEST} milliseconds", number)
        return exp.Literal.number(length)


def _window_sql(self: generator.Generator, node: TimeWindowNode) -> str:
    """A WINDOW clause as text."""
    window_type = node.name
    parts = [_written(node, "size", "" if window_type == "SESSION" else "SIZE ")]
    if window_type == "HOPPING":
        parts.append(_written(node, "advance", "ADVANCE BY "))
    parts += [_written(node, "retention", "RETENTION "), _written(node, "grace", "GRACE PERIOD ")]
    return f"WINDOW {window_type} ({', '.join(part for part in parts if part)})"


def _within_sql(self: generator.Generator, node: WithinNode) -> str:
    """A WITHIN clause as text."""
    text = f"WITHIN ({_written(node, 'before', '')}, {_written(node, 'after', '')})"
    grace = _written(node, "grace", " GRACE PERIOD ")
    return text + grace


def _written(node: exp.Expr, part: str, prefix: str) -> str:
    length = milliseconds(node, part)
    return "" if length is None else f"{prefix}{length} MILLISECONDS"


TRANSFORMS: dict[Any, Any] = {TimeWindowNode: _window_sql, WithinNode: _within_sql}
"""The functions by which our generator writes the nodes."""


_DAYS = {name: length for unit, length in UNITS.items() if unit != "YEAR" for name in (unit, f"{unit}S")}
_MONTHS = {"MONTH": 1, "MONTHS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12, "YEARS": 12}
INTERVAL_UNITS = (*_DAYS, *_MONTHS)
"""The units of an INTERVAL."""
_SHORT = {
    **dict.fromkeys(("S", "SEC", "SECS"), "SECOND"),
    **dict.fromkeys(("M", "MIN", "MINS"), "MINUTE"),
    **dict.fromkeys(("H", "HR", "HRS"), "HOUR"),
    **dict.fromkeys(("MS", "MSEC", "MSECS"), "MILLISECOND"),
    **dict.fromkeys(("MON", "MONS"), "MONTH"),
    **dict.fromkeys(("Y", "YR", "YRS"), "YEAR"),
    "D": "DAY",
    "W": "WEEK",
}
"""Units as a text may say them, in PostgreSQL's words: `m` is a minute."""
_PART = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
_CLOCK = re.compile(r"\s*([+-]?)([0-9]+):([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]+)?))?(?=\s|$)")
_ISO = re.compile(r"P(?=.)((?:[+-]?[0-9.]+[YMWD])*)(?:T((?:[+-]?[0-9.]+[HMS])+))?", re.IGNORECASE)
_FIELDS: dict[tuple[str, str], tuple[re.Pattern[str], tuple[str, ...]]] = {
    fields: (re.compile(rf"\s*([+-]?){pattern}\s*"), units)
    for fields, pattern, units in (
        (("YEAR", "MONTH"), r"([0-9]+)-([0-9]+)", ("YEAR", "MONTH")),
        (("DAY", "HOUR"), r"([0-9]+) +([0-9]+)", ("DAY", "HOUR")),
        (("DAY", "MINUTE"), r"([0-9]+) +([0-9]+):([0-9]+)", ("DAY", "HOUR", "MINUTE")),
        (("DAY", "SECOND"), r"([0-9]+) +([0-9]+):([0-9]+):([0-9.]+)", ("DAY", "HOUR", "MINUTE", "SECOND")),
        (("HOUR", "MINUTE"), r"([0-9]+):([0-9]+)", ("HOUR", "MINUTE")),
        (("HOUR", "SECOND"), r"([0-9]+):([0-9]+):([0-9.]+)", ("HOUR", "MINUTE", "SECOND")),
        (("MINUTE", "SECOND"), r"([0-9]+):([0-9.]+)", ("MINUTE", "SECOND")),
    )
}
"""{(first, last unit): the text of an INTERVAL first TO last, and its units}."""


class IntervalNode(exp.Expression):
    """INTERVAL …: both parts are number literals, perhaps negative ones as text."""

    arg_types: ClassVar[dict[str, bool]] = {"months": True, "milliseconds": True}

    @property
    def parts(self) -> tuple[int, int]:
        """Months and milliseconds."""
        return int(self.args["months"].name), int(self.args["milliseconds"].name)


def interval_of(text: str, unit: str | None = None, until: str | None = None) -> IntervalNode | None:
    """The interval of a text; None where it is none.

    Args:
        text: a number for `unit`; or numbers, each with its unit, and a time of hours (`1 day 02:30:00`); or ISO 8601's
            (`P1DT2H`).
        until: the text has each unit from `unit` to this one, as in `'1 02:03:04' DAY TO SECOND`.
    """
    if until is not None:
        return _of_fields(text, (unit or "").upper().removesuffix("S"), until.upper().removesuffix("S"))
    iso = _ISO.fullmatch(text.strip()) if unit is None else None
    if iso is not None:
        days, times = (re.findall(r"([+-]?[0-9.]+)([A-Za-z])", part or "") for part in iso.groups())
        named = [(number, {"M": "MON"}.get(short.upper(), short)) for number, short in days] + times
        return _sum([(number, _unit_of(short)) for number, short in named])
    if unit is not None:
        text = f"{text} {unit}"
    parts: list[tuple[str, str | None]] = []
    place = 0
    while place < len(text.rstrip()):
        if (clock := _CLOCK.match(text, place)) is not None:
            sign, hours, minutes, seconds = clock.groups()
            parts += [(sign + hours, "HOUR"), (sign + minutes, "MINUTE"), (sign + (seconds or "0"), "SECOND")]
            place = clock.end()
        elif (match := _PART.match(text, place)) is not None:
            parts.append((match.group(1), _unit_of(match.group(2))))
            place = match.end()
        else:
            return None
    return _sum(parts)


def _of_fields(text: str, first: str, last: str) -> IntervalNode | None:
    pattern, units = _FIELDS.get((first, last), (None, ()))
    found = pattern.fullmatch(text) if pattern is not None else None
    if found is None:
        return None
    sign, *numbers = found.groups()
    return _sum([(sign + number, unit) for number, unit in zip(numbers, units, strict=True)])


def _unit_of(word: str) -> str | None:
    name = word.upper()
    return name if name in INTERVAL_UNITS else _SHORT.get(name)


def _sum(parts: list[tuple[str, str | None]]) -> IntervalNode | None:
    """The length that numbers, each with its unit, come to: whole months and milliseconds, or None."""
    months = milliseconds = Decimal(0)
    for number, unit in parts:
        if unit is None:
            return None
        try:
            value = Decimal(number)
        except InvalidOperation:
            return None
        months += value * _MONTHS.get(unit, 0)
        milliseconds += value * _DAYS.get(unit, 0)
    if not parts or months % 1 or milliseconds % 1:
        return None
    return _node(int(months), int(milliseconds))


def _node(months: int, milliseconds: int) -> IntervalNode:
    return IntervalNode(
        months=exp.Literal(this=str(months), is_string=True),
        milliseconds=exp.Literal(this=str(milliseconds), is_string=True),
    )


def _interval_sql(self: generator.Generator, node: IntervalNode) -> str:
    months, milliseconds = node.parts
    return f"INTERVAL '{months} MONTHS {milliseconds} MILLISECONDS'"


INTERVAL_TRANSFORMS: dict[Any, Any] = {IntervalNode: _interval_sql}
"""The function by which our generator writes the node."""
