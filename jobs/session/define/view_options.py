"""The WITH (…) of a view: options of its maintenance, of its ownership, and ksqlDB's options of its topic.

A view is a table of the lake. The options of a topic are kept for its changelog topic and change no row; TIMESTAMP
changes the time of the rows (`jobs.ivm.plan.plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS
from strandline.jobs.model.definitions import OWNERSHIP_OPTIONS, Column, ErrorPolicy, Refresh, Semantics, State
from strandline.jobs.model.errors import OptionRefused
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
)
from strandline.jobs.session.define.ownership import checked
from strandline.jobs.sql.syntax import Option

_CHOICES: dict[str, tuple[str, ...]] = {
    "REFRESH": get_args(Refresh),
    "STATE": get_args(State),
    "SEMANTICS": get_args(Semantics),
    "ERRORS": get_args(ErrorPolicy),
}
TOPIC_OPTIONS = (
    *("KAFKA_TOPIC", "KEY_FORMAT", "VALUE_FORMAT", "FORMAT", "PARTITIONS", "REPLICAS"),
    *("VALUE_DELIMITER", "KEY_DELIMITER", "WRAP_SINGLE_VALUE", *NULLABLE_OPTIONS.values()),
)
"""Options kept for the view's changelog topic."""
_TIME_OPTIONS = ("TIMESTAMP", "TIMESTAMP_FORMAT")
_MOST_BYTES = 1 << 50
"""More is a typing error: no machine has it."""


def view_options(options: Iterable[Option]) -> dict[str, str]:
    """Check the options of a view: choices in lower case, options of a topic as they are written.

    Raises:
        OptionRefused: an option is unknown or has a wrong value.
        NotSupported: an option or value that is not supported yet.
    """
    known = (*_CHOICES, "CACHE_BYTES", *TOPIC_OPTIONS, *_TIME_OPTIONS, *OWNERSHIP_OPTIONS)
    given = allowed(options, known, "a view")
    check_one_way(given)
    return {name: _value(option) for name, option in given.items()}


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
    if name in ("KEY_FORMAT", "VALUE_FORMAT", "FORMAT"):
        return format_of(option, default="", key=name == "KEY_FORMAT")
    if name in NULLABLE_OPTIONS.values():
        return nullable_value(option, None)
    if name in ("PARTITIONS", "REPLICAS"):
        return str(count_of(option))
    if name == "KAFKA_TOPIC":
        check_topic(option)
    if name == "VALUE_DELIMITER":
        delimiter_of(option)
    return option.value
