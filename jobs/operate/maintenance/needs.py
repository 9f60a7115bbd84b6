"""The versions of tables that other tables still need: those that their version vectors name.

A refresh reads its inputs from the version in the vector on, so a view that has stopped holds its inputs as a reader's
lease does. When it is dropped, or has caught up, it holds them no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.operate.verify.subjects import subjects
from strandline.state_store.delta import reader
from strandline.state_store.leases import Need

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.state_store.layout import Lake


def needs_by_vector(lake: Lake, catalog: Catalog) -> dict[str, list[Need]]:
    """{table: the versions of it that other tables' vectors name}.

    Raises:
        CorruptState, ForeignWrite: a head does not read: nobody can say what its table needs.
    """
    found: dict[str, list[Need]] = {}
    for subject in subjects((), catalog, lake):
        head = reader.head(subject.path)
        for entry, at in head.record.vector.items() if head is not None else ():
            found.setdefault(subject.input_of(entry), []).append(Need("vector", at.version, subject.table))
    return found
