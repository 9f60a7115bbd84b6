"""Dates and times by patterns that are no constants, the same on both engines: each row's pattern is split in SQL.

For writing, each token is written by its letters. For reading, each pattern becomes a regular expression, once for each
part of the time: `HH:mm` is `([0-9]{2}):[0-9]{2}` for the hour. Spark is not left to its own patterns: they know other
letters, and take no names of days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.jobs.functions.scalars.contract import quoted
from strandline.jobs.functions.scalars.time_patterns import (
    ANY_ZONE,
    DAYS,
    FORMATS,
    MONTHS,
    RESERVED,
    ZONED,
    ZONES,
    any_case,
    for_spark,
    in_zone,
)
from strandline.jobs.functions.scalars.time_zones import Dialect, local_to_utc


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(any_case, names))})"


_TOKENS = "(?:'[^']*')+|" + "|".join(f"{letter}+" for letter in "yuMLdDEHhmsSazXxZV") + "|[A-Za-z]|[^'A-Za-z]+"
_NUMBERS = "yy|yyyy|uuuu|y|u|MM?|LL?|dd?|HH?|hh?|mm?|ss?|S+"
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
        return f"CASE {names} WHEN {self._fits('__x', _NUMBERS)} THEN {number} ELSE {escaped} END"

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
