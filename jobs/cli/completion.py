"""The completions that the prompt proposes: words of the language, functions, and names in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.functions.registry import SCALARS
from strandline.jobs.model.definitions import InsertQuery
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from strandline.jobs.catalog.catalog import Catalog

_TEXT = """
    ADD ALTER AND AS ASC BETWEEN BY CASE CHANGES COLUMN CREATE DESC DESCRIBE DISTINCT DROP ELSE EMIT END EXISTS
    EXPLAIN EXTENDED FORMAT FROM GROUP HAVING IN INSERT INTO IS JOIN KAFKA_TOPIC KEY KEY_FORMAT LEFT LIKE LIMIT LIST
    MATERIALIZED NOT NULL ON OR ORDER PARTITIONS PRIMARY QUERIES RENAME REPLACE SELECT SET SHOW STREAM STREAMS TABLE
    TABLES THEN TIMESTAMP TO TOPICS UNSET VALUES VALUE_FORMAT VIEW WHEN WHERE WITH exit help
"""
_WORDS = tuple(_TEXT.split())
_TYPES = tuple(base.value for base in BaseType if base is not BaseType.NULL)


class CatalogCompleter(Completer):
    """Completes the word before the cursor. Names come from the catalog at that moment."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Words that begin like the one before the cursor; names and columns first."""
        typed = document.get_word_before_cursor()
        if not typed:
            return
        for word in dict.fromkeys((*self._names(), *_WORDS, *_TYPES, *FUNCTIONS, *SCALARS)):
            if word.lower().startswith(typed.lower()) and word != typed:
                yield Completion(word, start_position=-len(typed))

    def _names(self) -> Iterator[str]:
        definitions = [d for d in self._catalog.definitions() if not isinstance(d, InsertQuery)]
        yield from self._catalog.relations()
        yield from (column.name for d in definitions for column in d.columns)
