"""The owners and tags of assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.model.options import Ownership
from strandline.orchestration.roles import role_tag

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Source, View
    from strandline.orchestration.roles import Role

OWNERS = ("team:strandline",)
"""Owners of assets without OWNER."""


def ownership_of(definition: Source | View, role: Role) -> dict[str, Any]:
    """Read the owners and tags of an asset of a definition: its own, and the tag of its role."""
    said = Ownership.read(definition.options)
    return {"owners": said.owners or OWNERS, "tags": {**said.tags, **role_tag(role)}}
