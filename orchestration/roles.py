"""The roles of assets, with the keys, names and tags that follow from them; their owners, tags, descriptions and
origins.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.model.definitions import Ownership

if TYPE_CHECKING:
    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.definitions import Source, View


TABLE_NAME = "dagster/table_name"
_ROLE = "strandline/role"
_PLAIN = re.compile(r"[A-Za-z0-9_]+\Z")
# Kafka's rule for the name of a topic; Dagster allows the same in the keys of external assets.
_TOPIC = re.compile(r"[A-Za-z0-9._-]+\Z")


class Role(StrEnum):
    """The role of an asset; the first part of its key, in the singular."""

    TOPIC = "topic"
    LOG = "log"
    TABLE = "table"
    PROJECTION = "projection"
    CHANGELOG = "changelog"
    DEAD_LETTERS = "dead letters"


_FOLDERS = {
    Role.TOPIC: "topics",
    Role.LOG: "logs",
    Role.TABLE: "tables",
    Role.PROJECTION: "projections",
    Role.CHANGELOG: "changelogs",
    Role.DEAD_LETTERS: "dead_letters",
}
_ENDINGS = {
    Role.TOPIC: ".topic",
    Role.LOG: "__log",
    Role.TABLE: "",
    Role.PROJECTION: "",
    Role.CHANGELOG: "__changelog",
    Role.DEAD_LETTERS: "__dead_letters",
}
# Words that Dagster draws an icon for, where it has one.
KINDS = {
    Role.LOG: {"deltalake", "dataset"},
    Role.TABLE: {"deltalake", "table"},
    Role.PROJECTION: {"deltalake", "view"},
    Role.CHANGELOG: {"deltalake", "changelog"},
    Role.DEAD_LETTERS: {"deltalake"},
}


def identifier(name: str) -> str:
    """`name` as Dagster takes it for groups, jobs and ops: letters, digits and `_`. Different names stay different."""
    if _PLAIN.match(name):
        return name
    return f"{re.sub('[^A-Za-z0-9_]', '_', name)}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def asset_key(role: Role, name: str) -> dg.AssetKey:
    """The key of the asset that shows `name` in this role.

    Dagster labels an asset by the last part of its key, so that part says the role: only a table and a projection, of
    which there are never two of one name, have none.
    """
    shown = name if role is Role.TOPIC and _TOPIC.match(name) else identifier(name)
    return dg.AssetKey([_FOLDERS[role], f"{shown}{_ENDINGS[role]}"])


def role_tag(role: Role) -> dict[str, str]:
    """The tag that names the role of an asset."""
    return {_ROLE: role.replace(" ", "_")}


def role_of(spec: dg.AssetSpec) -> Role:
    """The role of an asset."""
    return Role(spec.tags[_ROLE].replace("_", " "))


def table_of(spec: dg.AssetSpec) -> str:
    """The table of the lake that the asset shows. Topics have none."""
    return str(spec.metadata[TABLE_NAME])


def localized(spec: dg.AssetSpec, name: str, name_map: NameMap) -> dg.AssetSpec:
    """The asset of a definition, whose description says the name that people see if it was renamed."""
    now = name_map.of(name)
    if now == name:
        return spec
    return spec.replace_attributes(description=f"`{name}` is called `{now}` now.\n\n{spec.description}")


def code_hash(*parts: str) -> str:
    """A code version that changes with any of these texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


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
