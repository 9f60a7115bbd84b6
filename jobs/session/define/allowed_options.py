"""The allow-list of WITH (…): which options a statement takes, and why another is refused.

All other options are refused: Kafka's client options can load classes and run code in the reader (`sasl.jaas.config`,
callback handlers, interceptors), so none is ever taken from SQL. They belong in the settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from strandline.jobs.model.errors import NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.model.options import RETENTION_OPTIONS
from strandline.jobs.sql.syntax import Option

# ksqlDB's options that are not supported yet. The error says so, and not that the name is unknown.
KSQL_OPTIONS = frozenset(
    {
        *("WRAP_SINGLE_VALUE", "KEY_DELIMITER", "WINDOW_TYPE", "WINDOW_SIZE", "CLEANUP_POLICY"),
        *("KEY_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME"),
        *("KEY_AVRO_SCHEMA_FULL_NAME", "VALUE_AVRO_SCHEMA_FULL_NAME", "SOURCED_BY_CONNECTOR", "HEADERS"),
    }
)
SCHEMA_IDS: Mapping[Literal["key", "value"], str] = {"key": "KEY_SCHEMA_ID", "value": "VALUE_SCHEMA_ID"}
"""The options of a source by which its columns are taken from a schema of the registry."""
# Whatever the name: an age or a size from which on rows should go.
_FORGETS = re.compile(r"RETENTION|\bTTL\b|_TTL|TTL_|EXPIR|MAX_AGE")
_RUNS_CODE = re.compile(r"JAAS|CALLBACK|HANDLER|INTERCEPTOR|CLASS(ES)?$|REPORTERS|PROVIDER|DESERIALIZER|SERIALIZER")


def allowed(options: Iterable[Option], known: tuple[str, ...], owner: str) -> dict[str, Option]:
    """The options by name.

    Raises:
        OptionRefused: one that is not known, or is given twice.
        NotSupported: an option of ksqlDB that is not supported yet.
    """
    given: dict[str, Option] = {}
    for option in options:
        if option.name not in known:
            raise _refusal(option, known, owner)
        if option.name in given:
            raise error(OptionRefused, option, f"{option.name} is given twice")
        given[option.name] = option
    return given


def _refusal(option: Option, known: tuple[str, ...], owner: str) -> SqlError:
    shown = option.name.lower()
    if _FORGETS.search(option.name):
        return _forgets(option, owner)
    if "." in option.name or _RUNS_CODE.search(option.name):
        why = "it can run code in the reader" if _RUNS_CODE.search(option.name) else "it reaches the Kafka client"
        return error(
            OptionRefused,
            option,
            f"option '{shown}' is refused: {why}",
            "client options are not taken from SQL; the operator sets them in strandline.toml",
        )
    if option.name in KSQL_OPTIONS:
        return error(NotSupported, option, f"option {option.name} is not supported yet")
    unknown = UnknownName.among("option", option.name, known)
    return error(OptionRefused, option, f"{option.name} is not an option of {owner}", unknown.hint)


def _forgets(option: Option, owner: str) -> SqlError:
    """The refusal of an option by which rows would go with time: the views over them would become wrong silently."""
    if owner != "a source":
        message = f"{option.name} is refused: {owner} has the rows that its query gives, however old they are"
        return error(OptionRefused, option, message, "say in its WHERE which rows it is to have")
    message = f"{option.name} is refused: how old or large an event log may grow is said otherwise"
    return error(OptionRefused, option, message, f"say {' or '.join(RETENTION_OPTIONS)}")


def error(make: Callable[..., SqlError], option: Option, message: str, hint: str | None = None) -> SqlError:
    """An error at the position of the option."""
    return make(message, line=option.line, column=option.column, hint=hint)
