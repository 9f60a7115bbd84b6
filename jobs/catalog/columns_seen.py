"""The columns that the inputs of a query had when it was registered, where they were given further ones since.

    sales (shop, qty)           SELECT * FROM sales        shop, qty
    sales (shop, qty, coupon)   the same query             shop, qty        columns_seen: sales 2

A query that is registered while a source is about to get columns was read without them, so that is noted at once; of
all others, whoever gives the columns notes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.catalog.files import Content
from strandline.jobs.model.definitions import Source

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Definition, InsertQuery, View
    from strandline.state_store.layout import LakeLayout


def narrowed(content: Content, query: View | InsertQuery) -> Content:
    """The content in which the inputs of a query have the columns that they had when it was registered."""
    for name, seen in query.columns_seen.items():
        entry = content.entries.get(name)
        if entry is not None and isinstance(entry.definition, Source):
            narrow = replace(entry.definition, columns=entry.definition.columns[:seen])
            content = content.with_entry(replace(entry, definition=narrow))
    return content


def noted(query: View | InsertQuery, name: str, seen: int) -> View | InsertQuery:
    """The query with a note of an input's columns, unless it has one: then it knows fewer."""
    return query if name in query.columns_seen else replace(query, columns_seen={**query.columns_seen, name: seen})


def registered(definition: Definition, read: Content, now: Content, lake: LakeLayout) -> Definition:
    """A definition as it is to be added, with notes of sources that have, or are about to get, further columns.

    Args:
        read: what it was read over.
        now: what is there, under the catalog's lock.
    """
    for name in () if isinstance(definition, Source) else definition.inputs:
        before, after = (content.entries.get(name) for content in (read, now))
        if before is None or after is None or not isinstance(before.definition, Source):
            continue
        assert not isinstance(definition, Source)
        if before.definition != after.definition or about_to_change(name, lake):
            definition = noted(definition, name, len(before.definition.columns))
    return definition


def about_to_change(source: str, lake: LakeLayout) -> bool:
    """True if a source is about to get further columns."""
    intent = replacements.find(source, lake)
    return intent is not None and intent.refused is None
