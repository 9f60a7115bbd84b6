"""The owners and tags of assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.model.options import Stewardship
from strandline.orchestration.roles import role_tag

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Source, View
    from strandline.orchestration.roles import Role

OWNERS = ("team:strandline",)
"""Of what nobody owns."""


def stewardship_of(definition: Source | View, role: Role) -> dict[str, Any]:
    """The owners and tags of an asset of a definition: the definition's own, and the tag that says what it is."""
    said = Stewardship.read(definition.options)
    return {"owners": said.owners or OWNERS, "tags": {**said.tags, **role_tag(role)}}
