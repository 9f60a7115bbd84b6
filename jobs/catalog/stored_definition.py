"""A definition as its file holds it: JSON; or, where that does not read back, what its name and its remains still tell.

Format 2: `{"format": 2, "crc": c, "sequence": n, "type": "source"|"view"|"insert"|"function", "definition": {…}}`. A
column is `{"name", "type", "key"}`, with "header" where it comes from the record's headers, and "required" where it is
NOT NULL; a type is its text in SQL. "plain" is the type of a plain view, which an older Strandline does not know.
`crc` is the CRC-32 of the members after it.

`"called"` is before the fields of a definition that is called otherwise than it is stored: an older Strandline refuses
it.

A broken file stops its own pipeline and what reads it. Registering the definition again, or dropping it, mends the
catalog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Column, Definition, Function, InsertQuery, PlainView, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.from_text import parse_type
from strandline.state_store.delta import reader
from strandline.state_store.errors import CorruptState, FormatNewer, StoreError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.stored_state import check_format, of_members
from strandline.state_store.wording import Name, sentence

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


_PIPELINE = re.compile(rb'"pipeline": ("(?:[^"\\]|\\.)*")')
_CALLED = re.compile(rb'"called": ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Broken:
    """One broken file.

    Attributes:
        name: of the definition, from the file's name.
        content: the file's bytes; empty when it cannot be read at all.
        reason: one sentence.
        remedy: what to type, where the file itself says it: one of a later format.
        function: True for a function that a user wrote.
        newer: True for a file that a later version of Strandline wrote.
    """

    name: str
    path: LakePath
    content: bytes
    reason: str
    remedy: str | None = None
    function: bool = False
    newer: bool = False

    @property
    def number(self) -> int:
        """The number of a query into a stream; 0 for any other definition."""
        fed = tables.fed_stream(self.name)
        return fed[1] if fed and not self.function else 0

    @property
    def called(self) -> str:
        """What the definition is called, as far as the file tells; empty: as it is stored."""
        return _text(_CALLED.search(self.content)) or ""

    def error(self) -> CorruptState:
        """The error for all that needs the definition, with what to type."""
        fed = tables.fed_stream(self.name)
        kind, dropped = ("function", f"DROP FUNCTION {self.name}") if self.function else ("definition", "DROP it")
        if fed:
            dropped = sentence("DROP the stream '{}'", Name(fed[0]))
        made = FormatNewer if self.newer else CorruptState
        return made(
            sentence("the {} of '{}' is broken: {}", kind, Name(self.name), self.reason),
            where=str(self.path),
            hint=self.remedy
            or sentence("register it again: strandline apply FILE.sql, or its CREATE OR REPLACE; or {}", dropped),
        )

    def may_mention(self, name: str) -> bool:
        """True unless the file is whole enough to show that it does not mention `name`, in any case of letters."""
        text = self.content.decode(errors="replace").casefold()
        word = re.escape(json.dumps(name, ensure_ascii=False)[1:-1].casefold())
        # A definition mentions each name that it reads at least twice, so one wrong byte does not hide it.
        return not text.rstrip().endswith("}") or re.search(rf"(?<!\w){word}(?!\w)", text) is not None

    def holds(self, value: str) -> bool:
        """True if `value` stands in the file as a JSON text: a fingerprint found there was not made by chance."""
        return json.dumps(value, ensure_ascii=False).encode() in self.content

    def pipeline(self, lake: LakeLayout, pipelines: Collection[str]) -> str | None:
        """The pipeline that it belonged to, as far as can be told; None if not.

        Args:
            pipelines: those of the other definitions.

        The last commit of its table names the pipeline that wrote it. Without one, the name that makes the file whole
        when it is put in the place of the file's own word; then that word, if there is such a pipeline; and where it
        cannot be read, the one pipeline whose name stands in the file.
        """
        for table in (self.name, tables.log_below(self.name)):
            try:
                head = reader.head(lake.table(table))
            except StoreError:
                continue
            if head is not None and head.record.pipeline:
                return head.record.pipeline
        mended = next((each for each in pipelines if self._whole_with(each)), None)
        said = self._said()
        if mended is not None or said in pipelines:
            return mended or said
        named = [each for each in pipelines if self.holds(each)]
        return named[0] if len(named) == 1 else None

    def may_be_of(self, pipeline: str) -> bool:
        """True if the file names it in any place, or names in its own one what a single wrong letter makes of it."""
        said = self._said()
        if said is None or len(said) != len(pipeline):
            return said is None and json.dumps(pipeline, ensure_ascii=False)[1:-1].encode() in self.content
        return sum(one != other for one, other in zip(said, pipeline, strict=True)) <= 1

    def _whole_with(self, pipeline: str) -> bool:
        """True if nothing but the name of the pipeline is broken, and this is it: the checksum tells."""
        value = json.dumps(pipeline, ensure_ascii=False).encode()
        content, found = _PIPELINE.subn(lambda match: match[0].replace(match[1], value), self.content, count=1)
        try:
            from_json(content, where=str(self.path))
        except CorruptState:
            return False
        return found == 1

    def _said(self) -> str | None:
        """The pipeline that the file names, right or wrong."""
        return _text(_PIPELINE.search(self.content))


def _text(found: re.Match[bytes] | None) -> str | None:
    """The JSON text of a match's first group; None where it is none."""
    try:
        return str(json.loads(found[1])) if found else None
    except ValueError:
        return None
