"""The owners, tags, descriptions and origins of assets, as their definitions say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.model.options import Ownership
from strandline.orchestration.roles import Role, role_tag

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Source, View

OWNERS = ("team:strandline",)
"""Owners of assets without OWNER."""
ORIGIN = "written as"
"""The label of the text that a definition's SQL was made from."""
_OF_ROWS = (Role.LOG, Role.TABLE, Role.PROJECTION)
"""The roles of the assets that have the rows which a definition speaks of."""


def ownership_of(definition: Source | View, role: Role) -> dict[str, Any]:
    """Read the owners and tags of an asset of a definition: its own, and the tag of its role."""
    said = Ownership.read(definition.options)
    return {"owners": said.owners or OWNERS, "tags": {**said.tags, **role_tag(role)}}


def with_description(definition: Source | View, role: Role, sentence: str) -> str:
    """The description of an asset with the rows of a definition: what the definition says itself, then `sentence`."""
    said = Ownership.read(definition.options).description if role in _OF_ROWS else None
    return sentence if said is None else f"{said}\n\n{sentence}"


def origin_of(definition: Source | View, role: Role) -> dict[str, dg.MetadataValue[Any]]:
    """The text that the SQL of a definition was made from, for the asset with its rows."""
    origin = Ownership.read(definition.options).origin if role in _OF_ROWS else None
    return {} if origin is None else {ORIGIN: dg.MetadataValue.md(f"````\n{origin}\n````")}
