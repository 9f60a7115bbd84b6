"""A definition whose file does not read back: what its name and its remains still tell.

A broken file stops its own pipeline and what reads it. Registering the definition again, or dropping it, mends the
catalog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from strandline.jobs.catalog.as_json import from_json
from strandline.jobs.model import tables
from strandline.state_store.delta import reader
from strandline.state_store.errors import CorruptState, FormatNewer, StoreError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.wording import Name, sentence

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
            if head is not None and "/" in head.record.writer:
                return head.record.writer.rpartition("/")[0]
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
