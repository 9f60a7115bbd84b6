"""The WITH (…) of a view: options of its maintenance, of its ownership, and ksqlDB's options of its topic.

A view is a table of the lake. The options of a topic are kept for its changelog topic and change no row; TIMESTAMP
changes the time of the rows (`jobs.ivm.plan.plan`), and RETENTION lets them leave when they are old
(`jobs.session.define.view`).

A source has the options of ownership too: OWNER, TAGS, FRESHNESS, EXPECT, DESCRIPTION and ORIGIN, checked and brought
into one form. EXPECT is a list in YAML (so JSON will do), each entry an expectation of Great Expectations with its
arguments:

    - expect_column_values_to_be_between: {column: fare, min_value: 0}
      severity: warn
    - expect_column_values_to_not_be_null: {column: fare}
      quarantine: true

Of expectations with quarantine it is checked whether the rows that break one can be kept out, and kept aside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS, WRAP_OPTION
from strandline.jobs.model.definitions import (
    DOWNSTREAM,
    NO_END,
    OWNERSHIP_OPTIONS,
    RETENTION_OPTIONS,
    Column,
    ErrorPolicy,
    Expectation,
    Ownership,
    Refresh,
    Semantics,
    Severity,
    State,
)
from strandline.jobs.model.errors import NotSupported, OptionRefused, UnknownName
from strandline.jobs.session.define.options import (
    allowed,
    check_columns,
    check_one_way,
    check_topic,
    count_of,
    delimiter_of,
    error,
    format_of,
    nullable_value,
    retention_of,
    wrapped_value,
)
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.syntax import Option
from strandline.jobs.sql.time_clauses import interval_of
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View


_CHOICES: dict[str, tuple[str, ...]] = {
    "REFRESH": get_args(Refresh),
    "STATE": get_args(State),
    "SEMANTICS": get_args(Semantics),
    "ERRORS": get_args(ErrorPolicy),
}
TOPIC_OPTIONS = (
    *("KAFKA_TOPIC", "KEY_FORMAT", "VALUE_FORMAT", "FORMAT", "PARTITIONS", "REPLICAS"),
    *("VALUE_DELIMITER", "KEY_DELIMITER", WRAP_OPTION, *NULLABLE_OPTIONS.values()),
)
"""Options kept for the view's changelog topic."""
_TIME_OPTIONS = ("TIMESTAMP", "TIMESTAMP_FORMAT")
RETENTION: Final = "RETENTION"
"""The option that says how old the rows of a view may grow, as a text that INTERVAL takes; RETENTION_MS says the same
in milliseconds."""
RETENTION_MS: Final = RETENTION_OPTIONS[0]
_MOST_BYTES = 1 << 50
"""More is a typing error: no machine has it."""


def view_options(options: Iterable[Option]) -> dict[str, str]:
    """Check the options of a view: choices in lower case, options of a topic as they are written.

    Raises:
        OptionRefused: an option is unknown or has a wrong value.
        NotSupported: an option or value that is not supported yet.
    """
    known = (*_CHOICES, "CACHE_BYTES", *TOPIC_OPTIONS, *_TIME_OPTIONS, RETENTION, RETENTION_MS, *OWNERSHIP_OPTIONS)
    given = allowed(options, known, "a view")
    check_one_way(given)
    kept = _retention(given.pop(RETENTION, None), given.pop(RETENTION_MS, None))
    read = {name: _value(option) for name, option in given.items()}
    return read if kept is None else {**read, RETENTION: kept}


def _retention(length: Option | None, milliseconds: Option | None) -> str | None:
    """How old the rows may grow, by RETENTION or RETENTION_MS; None for no end."""
    if length is not None and milliseconds is not None:
        raise error(OptionRefused, milliseconds, "RETENTION and RETENTION_MS say the same: give one of them")
    if milliseconds is not None:
        number = retention_of(milliseconds)
        return None if number == str(NO_END) else f"{number} MILLISECONDS"
    if length is None:
        return None
    found = interval_of(length.value)
    if found is None or min(found.parts) < 0 or not any(found.parts):
        raise error(OptionRefused, length, f"'{length.value}' is no length of time", "write for example '7 DAYS'")
    return length.value.strip()


def check_formats(options: Mapping[str, str], columns: Sequence[Column]) -> None:
    """Check that the formats named in the options can hold the view's columns.

    Raises:
        InvalidQuery: a format cannot.
    """
    both = options.get("FORMAT")
    for side, key in (("key", True), ("value", False)):
        form = options.get(f"{side.upper()}_FORMAT", both)
        if form is not None:
            check_columns(side, form, [column for column in columns if column.key == key])


def _value(option: Option) -> str:
    name, value = option.name, option.value.lower()
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            known = ", ".join(repr(each) for each in _CHOICES[name])
            raise error(OptionRefused, option, f"'{option.value}' is no value of {name}", f"use one of {known}")
        return value
    if name == "CACHE_BYTES" and not (value.isdecimal() and value.isascii() and 0 < int(value) <= _MOST_BYTES):
        raise error(
            OptionRefused, option, f"CACHE_BYTES is a number of bytes, not '{option.value}'", "such as 67108864"
        )
    if name in OWNERSHIP_OPTIONS:
        return checked(option)
    if name in TOPIC_OPTIONS:
        return _of_topic(option)
    return option.value


def _of_topic(option: Option) -> str:
    name = option.name
    if name == WRAP_OPTION:
        return wrapped_value(option)
    if name in ("KEY_FORMAT", "VALUE_FORMAT", "FORMAT"):
        return format_of(option, default="", key=name == "KEY_FORMAT")
    if name in NULLABLE_OPTIONS.values():
        return nullable_value(option, None)
    if name in ("PARTITIONS", "REPLICAS"):
        return str(count_of(option))
    if name == "KAFKA_TOPIC":
        check_topic(option)
    if name in ("VALUE_DELIMITER", "KEY_DELIMITER"):
        delimiter_of(option)
    return option.value


# Dagster's rules: https://docs.dagster.io/guides/build/assets/metadata-and-tags
_OWNER = re.compile(r"team:[A-Za-z0-9_.-]+|[^@\s,]+@[^@\s,]+\.[^@\s,]+")
_TAG = re.compile(r"([A-Za-z0-9_.-]{1,63})(?:=([A-Za-z0-9_.-]{0,63}))?")
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?", re.IGNORECASE)
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_ENTRY_KEYS = ("severity", "blocking", "quarantine")


def checked(option: Option) -> str:
    """The value of one of these options in the form that is stored.

    Raises:
        OptionRefused: the value is not of the option's form.
        UnknownName: Great Expectations has no such expectation.
    """
    return _READERS[option.name](option)


def split(options: Iterable[Option]) -> tuple[dict[str, str], tuple[Option, ...]]:
    """Split the options of a source into those of ownership, checked, and all others. Raises as `checked`."""
    every = tuple(options)
    mine = allowed((each for each in every if each.name in _READERS), OWNERSHIP_OPTIONS, "a source")
    left = tuple(each for each in every if each.name not in _READERS)
    return {name: checked(option) for name, option in mine.items()}, left


def check_columns_of(options: Mapping[str, str], columns: Iterable[Column]) -> None:
    """Check that expectations speak of columns that are there. Raises UnknownName."""
    names = [column.name for column in columns]
    for entry in json.loads(options.get("EXPECT", "[]")):
        for column in Expectation(**entry).columns:
            if column not in names:
                raise UnknownName.among("column", column, names)


def _owner(option: Option) -> str:
    owners = [each.strip() for each in option.value.split(",")]
    for owner in owners:
        if not _OWNER.fullmatch(owner):
            raise error(OptionRefused, option, f"'{owner}' is no owner", "write team:NAME or an e-mail address")
    return ", ".join(owners)


def _tags(option: Option) -> str:
    tags = {}
    for each in option.value.split(","):
        found = _TAG.fullmatch(each.strip())
        if found is None:
            raise error(OptionRefused, option, f"'{each.strip()}' is no tag", "write key or key=value, then a comma")
        tags[found[1]] = found[2] or ""
    return json.dumps(tags)


def _freshness(option: Option) -> str:
    if option.value.strip().lower() == DOWNSTREAM:
        return DOWNSTREAM
    found = _LENGTH.fullmatch(option.value.strip())
    seconds = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if seconds <= 0:
        raise error(
            OptionRefused,
            option,
            f"'{option.value}' is no length of time",
            "write for example '5 seconds', or 'downstream'",
        )
    return f"{seconds:g}"


def _text(option: Option) -> str:
    if not option.value.strip():
        raise error(OptionRefused, option, f"{option.name} is empty", "leave it out, or write a text")
    return option.value.strip()


def _expect(option: Option) -> str:
    try:
        entries = yaml.safe_load(option.value)
    except yaml.YAMLError as fault:
        raise error(OptionRefused, option, f"EXPECT is no YAML: {str(fault).splitlines()[0]}") from fault
    if not isinstance(entries, list):
        raise error(OptionRefused, option, "EXPECT is no list of expectations", "begin each with '- '")
    found = [_entry(entry, option) for entry in entries]
    names = [Expectation(**each).name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise error(OptionRefused, option, f"'{twice}' is expected twice")
    return json.dumps(found)


def _entry(entry: object, option: Option) -> dict[str, Any]:
    """The fields of one Expectation."""
    if not isinstance(entry, dict):
        raise error(OptionRefused, option, f"'{entry}' is no expectation", "write - expect_…: {column: …}")
    types = [name for name in entry if name not in _ENTRY_KEYS]
    if len(types) != 1:
        raise error(OptionRefused, option, f"an entry of EXPECT names {len(types)} expectations: each names one")
    (kind,) = types
    _check_type(str(kind), option)
    arguments = entry[kind] or {}
    severity = entry.get("severity", "error")
    follows = {name: entry.get(name, False) for name in ("blocking", "quarantine")}
    if not isinstance(arguments, dict) or not _is_json(arguments):
        raise error(OptionRefused, option, f"the arguments of '{kind}' are no mapping of plain values")
    if severity not in get_args(Severity):
        raise error(OptionRefused, option, f"'{severity}' is no severity", "use error or warn")
    for name, value in follows.items():
        if not isinstance(value, bool):
            raise error(OptionRefused, option, f"'{value}' is no value of {name}", "use true or false")
    kept_out = {"quarantine": True} if follows["quarantine"] else {}  # else what is stored stays as it was
    return {"type": kind, "arguments": arguments, "severity": severity, "blocking": follows["blocking"], **kept_out}


def _check_type(kind: str, option: Option) -> None:
    known = _expectations()
    if kind not in known:
        close = get_close_matches(kind, known, n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else "see greatexpectations.io/expectations"
        raise error(UnknownName, option, f"Great Expectations has no '{kind}'", hint)


@cache
def _expectations() -> frozenset[str]:
    """The names that Great Expectations has: those of its modules. Importing it would take seconds."""
    found = find_spec("great_expectations")
    assert found is not None
    assert found.origin is not None
    return frozenset(file.stem for file in (Path(found.origin).parent / "expectations" / "core").glob("expect_*.py"))


def _is_json(value: object) -> bool:
    """True if it reads back from JSON as it is; dates of YAML do not: they must be quoted."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except TypeError:
        return False


_READERS: Mapping[str, Callable[[Option], str]] = {
    "OWNER": _owner,
    "TAGS": _tags,
    "FRESHNESS": _freshness,
    "EXPECT": _expect,
    "DESCRIPTION": _text,
    "ORIGIN": _text,
}


def check_quarantine_of_source(name: str, options: Mapping[str, str]) -> None:
    """Check that a source asks for no quarantine.

    Raises:
        NotSupported: it does. Its rows are the records of its topic, as they came.
    """
    if Ownership.read(options).quarantined:
        raise NotSupported(
            sentence("quarantine is for views: '{}' has every record of its topic that can be decoded", Name(name)),
            hint=sentence(
                "put the expectation on a view, CREATE … AS SELECT * FROM {}, and read that", Name(name, quote)
            ),
        )


def check_quarantine(view: View, catalog: Catalog) -> None:
    """Check that every row that breaks an expectation with quarantine goes to the view's dead letters.

    Raises:
        NotSupported: the view has no dead letters, or rows that do not come from its own query.
    """
    if not Ownership.read(view.options).quarantined:
        return
    if view.partial:
        raise NotSupported(
            "quarantine keeps rows in dead letters, and a partial view has none",
            hint="leave STATE = 'partial' or quarantine out",
        )
    errors = view.maintenance.errors
    if errors != "dead_letter":
        raise NotSupported(
            f"quarantine keeps rows in dead letters, and a view with ERRORS = '{errors}' has none",
            hint="add ERRORS = 'dead_letter', which SEMANTICS = 'ksql' does not have by itself",
        )
    queries = catalog.insert_queries(view.name)
    if queries:
        raise NotSupported(
            sentence("quarantine is not supported of a stream that other queries feed: '{}'", Name(queries[0].name)),
            hint=f"put the expectation on a view over {quote(view.name)}",
        )


def check_quarantine_of_target(target: View) -> None:
    """Check that no expectation keeps rows out of the view, which would not be asked about rows inserted into it.

    Raises:
        NotSupported: one does.
    """
    kept_out = Ownership.read(target.options).quarantined
    if kept_out:
        raise NotSupported(
            sentence(
                "inserting into '{}' is not supported: '{}' keeps rows of its query out of it",
                Name(target.name),
                Name(kept_out[0].name),
            ),
            hint=sentence("UNION ALL of '{}' and the query, in a view with that expectation", Name(target.name)),
        )
