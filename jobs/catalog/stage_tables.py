"""The tables that a view's rows, and the rows on which it fails, stand in: found by its commits, without its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.tables import dead_letters, is_shared, stage_number
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


def stage_tables(lake: LakeLayout, view: str) -> tuple[str, ...]:
    """The tables that a view's rows stand in: its own, and those of its inner stages, shared or not.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    found = [view]
    for table in found:
        head = reader.head(lake.table(table))
        read = (entry.rpartition("/")[2] for entry in (head.record.versions if head is not None else ()))
        inner = (name for name in read if is_shared(name) or stage_number(view, name) is not None)
        found += [name for name in inner if name not in found]
    return tuple(found)


def letters_of(lake: LakeLayout, stages: Iterable[str]) -> dict[str, Head]:
    """The heads of the tables with the rows on which an expression of a view fails, its own first: those of a part that
    is computed apart, as a subquery or what several views share, are kept aside beside that part.

    Args:
        stages: the view's `stage_tables`.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    heads = {name: reader.head(lake.table(name)) for name in map(dead_letters, stages)}
    return {name: head for name, head in heads.items() if head is not None}
