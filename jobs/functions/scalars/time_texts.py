"""Texts of dates and times, written and read by Java's patterns: by a constant one, and by one that each row brings.

The letters that both engines write alike are left to them (`strftime`, `date_format`) where the pattern is a constant;
the others are pieces that both compute from the same parts of the time, joined in their places:

    FORMAT_TIMESTAMP(at, 'HH:mm XXX', 'Europe/Paris')
    strftime(<at in Paris>, '%H:%M ') || <its distance from UTC>

A pattern of a row is split in SQL. For writing, each token is written by its letters. For reading, each pattern
becomes a regular expression, once for each part of the time: `HH:mm` is `([0-9]{2}):[0-9]{2}` for the hour. Spark is
not left to its own patterns: they know other letters, and take no names of days.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from strandline.jobs.functions.scalars.contract import quoted, unquoted
from strandline.jobs.functions.scalars.time_patterns import (
    ANY_ZONE,
    DAYS,
    FORMATS,
    MONTHS,
    RESERVED,
    ZONED,
    ZONES,
    Dialect,
    any_case,
    for_spark,
    in_zone,
    local_to_utc,
    tokens,
    written,
)
from strandline.jobs.model.errors import InvalidQuery

# Two days of one year: in places with summer time the clocks differ between them.
_WINTER, _SUMMER = dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC)
_YEAR, _MONTH, _DAY, _OF_YEAR, _QUARTER, _HOUR = (
    *("year({0})", "month({0})", "day({0})", "dayofyear({0})", "quarter({0})", "hour({0})"),
)
_MICROS = {
    "spark": "pmod(unix_micros({0}), 86400000000)",
    "duckdb": "(((epoch_us({0}) % 86400000000) + 86400000000) % 86400000000)",
}
_WEEKDAY = {"spark": "(weekday({0}) + 1)", "duckdb": "isodow({0})"}
# {letters: the number, and with how many digits at least it is written}
_NUMBERS: Mapping[str, tuple[str, int]] = {
    **{
        "y": (_YEAR, 1),
        "u": (_YEAR, 1),
        "yyy": (_YEAR, 3),
        "uuu": (_YEAR, 3),
        "yyyyy": (_YEAR, 5),
        "uuuuu": (_YEAR, 5),
    },
    **{"DD": (_OF_YEAR, 2), "Q": (_QUARTER, 1), "QQ": (_QUARTER, 2), "q": (_QUARTER, 1), "qq": (_QUARTER, 2)},
    **{"QQQQQ": (_QUARTER, 1), "qqqqq": (_QUARTER, 1)},
    **{"K": (f"({_HOUR} % 12)", 1), "KK": (f"({_HOUR} % 12)", 2)},
    **{letters: (f"CASE WHEN {_HOUR} = 0 THEN 24 ELSE {_HOUR} END", len(letters)) for letters in ("k", "kk")},
}
# Of the day's microseconds: what Java counts in milliseconds and nanoseconds.
_OF_DAY = {"A": "({} / 1000)", "N": "({} * 1000)", "n": "({} % 1000000 * 1000)"}
_ERAS = {1: "AD", 2: "AD", 3: "AD", 4: "Anno Domini", 5: "A"}
_ORDINALS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_MOST_DIGITS = 9


def formatted(dialect: Dialect, moment: str, pattern: str, zone: str = "", instant: str | None = None) -> str:
    """The text of a moment.

    Args:
        moment: a DATE, or a TIMESTAMP as the clocks of the zone show it.
        pattern: Java's; no literal of an engine.
        zone: a time zone's name, as the engine writes it.
        instant: the moment in UTC, when there is a zone; None: it is in UTC.

    Raises:
        InvalidQuery: a part of the pattern means nothing, or cannot be written.
    """
    parts, plain = [], ""
    for letters, is_text in tokens(pattern):
        piece = None if is_text else _piece(dialect, letters, moment, zone, instant)
        if piece is not None:
            parts += [_plain(dialect, moment, plain), piece]
            plain = ""
        else:
            plain += "'" + letters.replace("'", "''") + "'" if is_text else letters
    joined = [part for part in (*parts, _plain(dialect, moment, plain)) if part]
    text = " || ".join(joined) if joined else "''"
    return f"CASE WHEN {moment} IS NOT NULL THEN {text} END" if len(joined) != 1 or parts else f"({text})"


def _piece(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str | None:
    """The text of letters that the engines do not write alike; None: they do."""
    letter, length = letters[0], len(letters)
    if letters in _NUMBERS:
        number, digits = _NUMBERS[letters]
        return _padded(dialect, number.format(moment), digits)
    if letter == "S" and length <= _MOST_DIGITS and letters not in FORMATS:
        fraction = _padded(dialect, f"({_MICROS[dialect].format(moment)} % 1000000)", 6)
        return f"substring({fraction} || '000', 1, {length})"
    if letter in _OF_DAY and length <= _MOST_DIGITS:
        counted = _OF_DAY[letter].format(_MICROS[dialect].format(moment))
        return _padded(dialect, counted.replace("/", {"spark": "div", "duckdb": "//"}[dialect]), length)
    if letter == "G" and length in _ERAS:
        return f"'{_ERAS[length]}'"
    if letters in ("QQQ", "qqq"):
        return f"'Q' || {_text(dialect, _QUARTER.format(moment))}"
    if letters in ("QQQQ", "qqqq"):
        return _among(_QUARTER.format(moment), _ORDINALS)
    if letters in ("LLL", "LLLL", "MMMMM", "LLLLL"):
        cut = {3: 3, 4: None, 5: 1}[length]
        return _among(_MONTH.format(moment), tuple(name[:cut] for name in MONTHS))
    if letters == "EEEEE":
        return _among(_WEEKDAY[dialect].format(moment), tuple(name[:1] for name in DAYS))
    return _zone_text(dialect, letters, moment, zone, instant) if _is_of_zone(letters) else None


def _is_of_zone(letters: str) -> bool:
    return letters in ZONES or letters in ("O", "OOOO", "XXXX", "XXXXX", "xxxx", "xxxxx", "ZZZZ", "ZZZZZ")


def _plain(dialect: Dialect, moment: str, pattern: str) -> str:
    if not pattern:
        return ""
    made = written(pattern)  # also for Spark: neither engine is asked for what DuckDB lacks
    if dialect == "spark":
        return f"date_format({moment}, {quoted(for_spark(pattern), dialect)})"
    return f"strftime({moment}, {quoted(made, dialect)})"


def _zone_text(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str:
    """The text of a zone's letters: its name, or its distance from UTC."""
    if letters == "VV":
        return zone if instant is not None else "'UTC'"
    if letters.startswith("z"):
        return _zone_name(dialect, letters, moment, zone, instant)
    distance = _distance(dialect, moment, instant)
    whole, rest = (f"abs({distance}) {divide} 60" for divide in ({"spark": "div", "duckdb": "//"}[dialect], "%"))
    hours, minutes = (_padded(dialect, f"({part})", 2) for part in (whole, rest))
    sign = f"CASE WHEN {distance} < 0 THEN '-' ELSE '+' END"
    if letters in ("O", "OOOO", "ZZZZ"):
        short = f"{_text(dialect, f'({whole})')} || CASE WHEN {rest} = 0 THEN '' ELSE ':' || {minutes} END"
        text = f"'GMT' || {sign} || " + (short if letters == "O" else f"{hours} || ':' || {minutes}")
        return f"CASE WHEN {distance} = 0 THEN 'GMT' ELSE {text} END"
    colon = "':' || " if letters in ("XXX", "XXXXX", "xxx", "xxxxx", "ZZZZZ") else ""
    text = f"{sign} || {hours} || {colon}{minutes}"
    if letters in ("X", "x"):
        text = f"{sign} || {hours} || CASE WHEN {rest} = 0 THEN '' ELSE {minutes} END"
    if letters.startswith("X") or letters == "ZZZZZ":
        return f"CASE WHEN {distance} = 0 THEN 'Z' ELSE {text} END"
    return f"({text})"


def _distance(dialect: Dialect, moment: str, instant: str | None) -> str:
    """How many minutes the clocks are ahead of UTC."""
    if instant is None:
        return "0"
    if dialect == "spark":
        return f"((unix_micros({moment}) - unix_micros({instant})) div 60000000)"
    return f"((epoch_us({moment}) - epoch_us({instant})) // 60000000)"


def _zone_name(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str:
    """PST or PDT, told apart by the distance; before time zones, and of no constant zone, what the standard time is."""
    if instant is None:
        return f"'{ZONES[letters]}'"
    known = unquoted(zone, dialect)
    if letters == "zzzz" or known is None:
        raise InvalidQuery(
            f"the pattern letters {letters} need another zone than {zone}" if known is None else "zzzz is of UTC alone",
            hint="VV is the zone's name, XXX its distance from UTC",
        )
    names: dict[int, str] = {}
    for day in (_SUMMER, _WINTER):
        local = day.astimezone(ZoneInfo(known))
        offset = local.utcoffset() or dt.timedelta()
        names[int(offset.total_seconds()) // 60] = local.tzname() or known
    distance = _distance(dialect, moment, instant)
    standard = min(names)
    other = "".join(
        f" WHEN {minutes} THEN {quoted(name, dialect)}" for minutes, name in names.items() if minutes != standard
    )
    if not other:
        return quoted(names[standard], dialect)
    return f"CASE {distance}{other} ELSE {quoted(names[standard], dialect)} END"


def _among(number: str, names: tuple[str, ...]) -> str:
    branches = " ".join(f"WHEN {place} THEN '{name}'" for place, name in enumerate(names, 1))
    return f"CASE {number} {branches} END"


def _padded(dialect: Dialect, number: str, digits: int) -> str:
    text = _text(dialect, number)
    return text if digits == 1 else f"lpad({text}, CAST(greatest({digits}, length({text})) AS INT), '0')"


def _text(dialect: Dialect, number: str) -> str:
    return f"CAST({number} AS {'STRING' if dialect == 'spark' else 'VARCHAR'})"


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(any_case, names))})"


_TOKENS = "(?:'[^']*')+|" + "|".join(f"{letter}+" for letter in "yuMLdDEHhmsSazXxZV") + "|[A-Za-z]|[^'A-Za-z]+"
_NUMBER_LETTERS = "yy|yyyy|uuuu|y|u|MM?|LL?|dd?|HH?|hh?|mm?|ss?|S+"
# The same in a pattern, as what a text has there: names in any case, a zone in any of its forms.
_NAMES = {
    ("MMM", "LLL"): _any_of(name[:3] for name in MONTHS),
    ("MMMM", "LLLL"): _any_of(MONTHS),
    ("E", "EE", "EEE"): _any_of(name[:3] for name in DAYS),
    ("EEEE",): _any_of(DAYS),
    ("a",): "[AaPp][Mm]",
    tuple(ZONED): ANY_ZONE,
}
_PARTS = {
    **{"year": "[yu]+", "month": "MM?|LL?", "named": "MMMM?|LLLL?", "day": "d+", "half": "a", "of_half": "h+"},
    **{"hour": "H+", "minute": "m+", "second": "s+", "fraction": "S+", "zone": "|".join(ZONED)},
}
"""The parts of a time, and the letters of each."""
# Parts of a second of which DuckDB has no format: digits of its milliseconds.
_OF_MILLISECONDS = {"S": 1, "SS": 2}


def written_by_row(dialect: Dialect, moment: str, pattern: str) -> str:
    """The text of a DATE, or of a TIMESTAMP as the clocks show it."""
    return _DIALECTS[dialect].written(moment, pattern)


def read_by_row(dialect: Dialect, text: str, pattern: str, zone: str | None = None) -> str:
    """The TIMESTAMP (of DuckDB: without zone, in UTC) that a text stands for; NULL when it does not match the pattern.

    Args:
        zone: the name of the zone of a text that states none; None: UTC.
    """
    return _DIALECTS[dialect].read(text, pattern, zone)


def is_pattern(dialect: Dialect, pattern: str) -> str:
    """The condition that all of a pattern has a meaning here; TRUE for NULL."""
    return _DIALECTS[dialect].is_pattern(pattern)


@dataclass(frozen=True)
class _Dialect:
    """How an engine writes what these texts are made of.

    Attributes:
        each: `{items}` with `{body}` in place of each `{variable}`.
        kept: those items of which `{body}` is true.
        struct: what makes a struct of fields written by `field`.
        row: an array of one item.
        first: the item of such an array.
        fits: all of `{text}` matches the regular expression `{expression}`, itself SQL text.
        place: the place of `{item}` among `{items}`, from 1; NULL when it is none of them.
        all_tokens: the parts of `{text}` that match the literal `{expression}`.
        escaped: `{text}` as a regular expression.
    """

    dialect: Dialect
    each: str
    kept: str
    struct: str
    field: str
    row: str
    first: str
    size: str
    joined: str
    fits: str
    place: str
    all_tokens: str
    escaped: str

    def written(self, moment: str, pattern: str) -> str:
        letters = {**{each: self._format(each) for each in FORMATS}, **self._of_milliseconds()}
        letters |= {each: self._quoted(text) for each, text in ZONES.items()}
        branches = " ".join(f"WHEN '{each}' THEN {text}" for each, text in letters.items())
        pieces = self._each(self._tokens(pattern), "__x", f"CASE __x {branches} ELSE {self._text()} END")
        text = f"CASE WHEN __m IS NOT NULL THEN {self.joined.format(items=pieces)} END"
        return self._let("__m", moment, text)

    def read(self, text: str, pattern: str, zone: str | None) -> str:
        # Each step is made once, and bound to a variable: the tokens of the pattern with the regular expression of
        # each, the parts of the text, what the clocks show.
        token = self._struct({"letters": "__x", "reads": self._reads()})
        joined = self.joined.format(items=self._each("__p.tokens", "__x", "__x.reads"))
        fits = self.fits.format(text="__p.given", expression=joined)
        parts = self._struct({name: self._part(letters) for name, letters in _PARTS.items()})
        unstated = "__u.at" if zone is None else local_to_utc(self.dialect, "__u.at", zone)
        stated = in_zone(self.dialect, "__u.at", "__u.zone")
        local = self._struct({"at": self._local("__t"), "zone": "__t.zone"})
        made = self._struct({"given": text, "tokens": self._each(self._tokens(pattern), "__x", token)})
        for variable, step in (
            ("__p", f"CASE WHEN {fits} THEN {parts} END"),
            ("__t", f"CASE WHEN __t IS NOT NULL THEN {local} END"),
            ("__u", f"CASE WHEN __u.zone IS NULL THEN {unstated} ELSE {stated} END"),
        ):
            made = self._let(variable, made, step)
        return made

    def is_pattern(self, pattern: str) -> str:
        known = ", ".join(f"'{letters}'" for letters in (*FORMATS, *ZONES, *_OF_MILLISECONDS))
        letters = self._fits("__x", "[A-Za-z]+")
        reserved = f"left(__x, 1) <> chr(39) AND translate(__x, '{RESERVED}', '') <> __x"
        unknown = f"({letters} AND __x NOT IN ({known})) OR ({reserved})"
        tokens = self._tokens(pattern)
        strange = self.size.format(items=self.kept.format(items=tokens, variable="__x", body=unknown))
        return f"(({pattern}) IS NULL OR ({strange} = 0 AND {self.joined.format(items=tokens)} = {pattern}))"

    def _local(self, parts: str) -> str:
        """What the clocks show, of the texts of the parts of a time."""

        def number(name: str, missing: str) -> str:
            return f"coalesce(TRY_CAST({parts}.{name} AS BIGINT), {missing})"

        year = f"CASE WHEN {number('year', '1970')} < 100 THEN 2000 ELSE 0 END + {number('year', '1970')}"
        named = self.place.format(
            items=self._row(*(self._quoted(month[:3].lower()) for month in MONTHS)),
            item=f"lower(left({parts}.named, 3))",
        )
        month = f"coalesce({named}, {number('month', '1')})"
        afternoon = f"CASE WHEN upper({parts}.half) = 'PM' THEN 12 ELSE 0 END"
        hour = f"coalesce(TRY_CAST({parts}.of_half AS BIGINT) % 12 + {afternoon}, {number('hour', '0')})"
        minute, second = number("minute", "0"), number("second", "0")
        valid = (
            f"{number('hour', '0')} < 24 AND {minute} < 60 AND {second} < 60"
            f" AND {number('of_half', '1')} BETWEEN 1 AND 12"
        )
        # As text, since TRY_CAST gives NULL for the 31st of February, and TRY does not go with error().
        day = self._joined_text(f"({year})", "'-'", month, "'-'", number("day", "1"))
        clock = self._joined_text(f"({hour})", "':'", minute, "':'", second, "'.'", f"coalesce({parts}.fraction, '0')")
        moment = self._joined_text(day, "' '", clock)
        return f"CASE WHEN {valid} THEN TRY_CAST({moment} AS TIMESTAMP) END"

    def _part(self, letters: str) -> str:
        """The part of the text `__p.given` at those letters; NULL when the pattern `__p.tokens` has none of them."""
        grouped = f"CASE WHEN {self._fits('__x.letters', letters)} THEN '(' || __x.reads || ')' ELSE __x.reads END"
        joined = self.joined.format(items=self._each("__p.tokens", "__x", grouped))
        # An empty group at the end: Spark fails when there is none.
        expression = f"'^' || {joined} || '()$'"
        return f"nullif(regexp_extract(__p.given, {expression}, 1), '')"

    def _reads(self) -> str:
        """The regular expression of the token `__x`."""
        names = " ".join(
            f"WHEN __x IN ({', '.join(map(self._quoted, letters))}) THEN {self._quoted(text)}"
            for letters, text in _NAMES.items()
        )
        length = self._joined_text("'[0-9]{'", "length(__x)", "'}'")
        number = f"CASE WHEN length(__x) = 1 THEN '[0-9]+' ELSE {length} END"
        escaped = self.escaped.format(text=self._text())
        return f"CASE {names} WHEN {self._fits('__x', _NUMBER_LETTERS)} THEN {number} ELSE {escaped} END"

    def _text(self) -> str:
        """What the token `__x` that has no value stands for."""
        quote, doubled = self._quoted("'"), self._quoted("''")
        return (
            f"CASE WHEN __x = {doubled} THEN {quote} WHEN left(__x, 1) = {quote}"
            f" THEN replace(substring(__x, 2, length(__x) - 2), {doubled}, {quote})"
            # Nothing that a text would have: no text fits.
            f" WHEN {self._fits('__x', '[A-Za-z]+')} THEN chr(0) ELSE __x END"
        )

    def _format(self, letters: str) -> str:
        if self.dialect == "spark":
            return f"date_format(__m, {self._quoted(for_spark(letters))})"
        if letters in ("y", "u"):
            return "CAST(year(__m) AS VARCHAR)"  # DuckDB's format has four digits always
        return f"strftime(__m, {self._quoted(FORMATS[letters])})"

    def _of_milliseconds(self) -> Mapping[str, str]:
        return {letters: f"left({self._format('SSS')}, {count})" for letters, count in _OF_MILLISECONDS.items()}

    def _joined_text(self, *pieces: str) -> str:
        return f"concat({', '.join(pieces)})"

    def _tokens(self, pattern: str) -> str:
        return self.all_tokens.format(text=pattern, expression=self._quoted(_TOKENS))

    def _fits(self, text: str, expression: str) -> str:
        return self.fits.format(text=text, expression=self._quoted(expression))

    def _let(self, variable: str, value: str, body: str) -> str:
        return self.first.format(items=self._each(self._row(value), variable, body))

    def _each(self, items: str, variable: str, body: str) -> str:
        return self.each.format(items=items, variable=variable, body=body)

    def _struct(self, fields: Mapping[str, str]) -> str:
        return (
            f"{self.struct}({', '.join(self.field.format(name=name, value=value) for name, value in fields.items())})"
        )

    def _row(self, *items: str) -> str:
        return self.row.format(items=", ".join(items))

    def _quoted(self, text: str) -> str:
        return quoted(text, self.dialect)


_DIALECTS: Mapping[str, _Dialect] = {
    "duckdb": _Dialect(
        "duckdb",
        each="list_transform({items}, lambda {variable}: {body})",
        kept="list_filter({items}, lambda {variable}: {body})",
        struct="struct_pack",
        field="{name} := {value}",
        row="[{items}]",
        first="{items}[1]",
        size="len({items})",
        joined="array_to_string({items}, '')",
        fits="regexp_full_match({text}, {expression})",
        place="list_position({items}, {item})",
        all_tokens="regexp_extract_all({text}, {expression})",
        escaped="regexp_escape({text})",
    ),
    "spark": _Dialect(
        "spark",
        each="transform({items}, {variable} -> {body})",
        kept="filter({items}, {variable} -> {body})",
        struct="named_struct",
        field="'{name}', {value}",
        row="array({items})",
        first="{items}[0]",
        size="size({items})",
        joined="array_join({items}, '')",
        fits="regexp_like({text}, concat('^(?:', {expression}, ')\\\\z'))",
        place="nullif(array_position({items}, {item}), 0)",
        all_tokens="regexp_extract_all({text}, {expression}, 0)",
        escaped="regexp_replace({text}, '[^0-9A-Za-z\\\\x00\\\\x80-\\\\x{{10FFFF}}]', '\\\\\\\\$0')",
    ),
}
