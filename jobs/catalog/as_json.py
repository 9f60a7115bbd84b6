"""Definitions as JSON, the persisted form of the catalog.

Format 2: `{"format": 2, "crc": c, "sequence": n, "type": "source"|"view"|"insert"|"function", "definition": {…}}`. A
column is `{"name", "type", "key"}`, with "header" where it comes from the record's headers, and "required" where it is
NOT NULL; a type is its text in SQL. "plain" is the type of a plain view, which an older Strandline does not know.
`crc` is the CRC-32 of the members after it.

`"called"` is before the fields of a definition that is called otherwise than it is stored: an older Strandline refuses
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from strandline.jobs.model.definitions import Column, Definition, Function, InsertQuery, PlainView, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.types_text import parse_type
from strandline.state_store.checksum import of_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.formats import check_format

FORMAT = 2
_LATER: Mapping[str, Any] = {
    "first_stage": View.first_stage,
    "columns_seen": {},
    "added": Source.added,
    "by_value": View.by_value,
    "plain_stars": View.plain_stars,
}
"""What the format was given later, with what most definitions have."""
_CLASSES: Mapping[str, type[Source] | type[View] | type[PlainView] | type[InsertQuery] | type[Function]] = {
    "source": Source,
    "view": View,
    "plain": PlainView,
    "insert": InsertQuery,
    "function": Function,
}


class StoredDefinition(NamedTuple):
    """What a file holds. `called` is empty for what is called as it is stored."""

    sequence: int
    definition: Definition | PlainView | Function
    called: str


def to_json(sequence: int, definition: Definition | PlainView | Function, called: str = "") -> str:
    """A definition, its place in the order of creation and what it is called, as the text of a file."""
    type_name = next(name for name, cls in _CLASSES.items() if isinstance(definition, cls))
    values = {"called": called} if called else {}
    values |= {f.name: _plain(getattr(definition, f.name)) for f in fields(definition)}
    for name, usual in _LATER.items():
        if values.get(name) == usual:
            del values[name]  # an older Strandline, which does not know it, reads every other definition
    content = {"sequence": sequence, "type": type_name, "definition": values}
    document = {"format": FORMAT, "crc": of_members(content, ascii_only=False), **content}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def from_json(data: bytes, where: str) -> StoredDefinition:
    """What `to_json` wrote.

    Raises:
        FormatNewer: a later version wrote it.
        CorruptState: the data is not such a document, fails its checksum, or is of a format that is not read any more.
    """
    try:
        document = json.loads(data.decode())
        check_format("the catalog file", document.pop("format"), FORMAT, where)
        if document.pop("crc") != of_members(document, ascii_only=False):
            raise CorruptState("the catalog file fails its checksum", where=where)
        cls = _CLASSES[document["type"]]
        values = {name: _value(name, value) for name, value in document["definition"].items()}
        called = str(values.pop("called", ""))
        return StoredDefinition(int(document["sequence"]), cls(**values), called)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SqlError) as error:
        raise CorruptState(f"the catalog file does not read back: {error}", where=where) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Column):
        plain = {"name": value.name, "type": str(value.type), "key": value.key}
        plain |= {} if value.header is None else {"header": value.header}
        return plain | ({"required": True} if value.required else {})
    if isinstance(value, SqlType):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _value(name: str, value: Any) -> Any:
    if name in ("columns", "parameters", "hidden"):
        return tuple(_column(each) for each in value)
    if name == "returns":
        return _type(value)
    return tuple(value) if isinstance(value, list) else value


def _column(value: Mapping[str, Any]) -> Column:
    required = value.get("required", False)
    return Column(value["name"], _type(value["type"]), value["key"], value.get("header"), required)


@cache
def _type(text: str) -> SqlType:
    return parse_type(text)
