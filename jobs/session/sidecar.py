"""The sidecar of a `.sql` file: `NAME.yaml` beside `NAME.sql`, with the stewardship of what the file defines.

    locations:                     # a stream, table or view of the file
      owner: team:logistics
      tags: {domain: parcels}
      freshness: 5 seconds
      expect:
        - expect_column_values_to_not_be_null: {column: place}

Each entry says what a WITH option of the same name says (`jobs.model.options`), and is checked as one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from strandline.jobs.model.errors import InvalidQuery, OptionRefused, UnknownName
from strandline.jobs.model.options import STEWARDSHIP_OPTIONS
from strandline.jobs.sql.syntax import CreateSource, CreateView, Option, Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

AnyStatement = TypeVar("AnyStatement", bound=Statement)


def tended(statements: Sequence[AnyStatement], file: Path) -> list[AnyStatement]:
    """The statements of a file, with the options that its sidecar adds; unchanged when there is none.

    Raises:
        InvalidQuery: the sidecar is not a mapping of names to options.
        UnknownName: it names what the file does not define.
        OptionRefused: it names an option that is none of stewardship.
    """
    sidecar = file.with_suffix(".yaml")
    if not sidecar.is_file():
        return list(statements)
    entries = _read(sidecar)
    named = [each.name for each in statements if isinstance(each, CreateSource | CreateView)]
    for name in entries:
        if name not in named:
            raise UnknownName.among(f"name in {sidecar.name}:", name, named)
    return [_with_options(each, entries, sidecar) for each in statements]


def _read(sidecar: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        entries = yaml.safe_load(sidecar.read_text(encoding="utf-8-sig")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise InvalidQuery(f"'{sidecar}' is no YAML: {' '.join(str(fault).split())}") from fault
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise InvalidQuery(f"'{sidecar}' does not map names to options", hint="write name:, and its options below it")
    return entries


def _with_options(statement: AnyStatement, entries: Mapping[str, Mapping[str, Any]], sidecar: Path) -> AnyStatement:
    if not isinstance(statement, CreateSource | CreateView) or statement.name not in entries:
        return statement
    added = []
    for key, value in entries[statement.name].items():
        if str(key).upper() not in STEWARDSHIP_OPTIONS:
            known = ", ".join(name.lower() for name in STEWARDSHIP_OPTIONS)
            raise OptionRefused(f"'{key}' is no option of {sidecar.name}", hint=f"use one of {known}")
        added.append(Option(str(key).upper(), _text(value)))
    return replace(statement, options=(*statement.options, *added))


def _text(value: object) -> str:
    """The value as a WITH option writes it: tags and owners with commas, expectations as YAML."""
    match value:
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items())
        case list() if all(isinstance(each, str) for each in value) and value:
            return ", ".join(value)
        case list():
            return str(yaml.safe_dump(value, allow_unicode=True, default_flow_style=True))
        case _:
            return str(value)
