"""The names of types that CREATE TYPE gave, in one file of the catalog: `{"crc": c, "types": {name: type as SQL}}`.

A name stands for its type while a statement is read; nothing that is defined remembers it. So a type can be dropped at
any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.types_text import parse_type
from strandline.state_store.checksum import of_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import make_folder, replace
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath


def read_types(lake: LakeLayout) -> dict[str, SqlType]:
    """The types by their lower-case names; a lake without the file has none.

    Raises:
        CorruptState: the file does not read back; define the types again after removing it.
    """
    path = _path(lake)
    try:
        document = json.loads(path.read_bytes().decode())
        if document.pop("crc") != of_members(document, ascii_only=False):
            raise CorruptState("the file of types fails its checksum", where=str(path), hint=_HINT)
        return {name: parse_type(text) for name, text in document["types"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, SqlError) as error:
        raise CorruptState(f"the file of types does not read back: {error}", where=str(path), hint=_HINT) from error


def write_types(types: Mapping[str, SqlType], lake: LakeLayout) -> None:
    """Put these types in the place of those that are there; the catalog's lock must be held."""
    path = _path(lake)
    content = {"types": {name: str(types[name]) for name in sorted(types)}}
    document = {"crc": of_members(content, ascii_only=False), **content}
    make_folder(path.parent)
    replace(path, json.dumps(document, ensure_ascii=False, indent=2).encode())


_HINT = "remove the file, and CREATE TYPE again: no definition depends on it"


def _path(lake: LakeLayout) -> LakePath:
    return lake.catalog / "types" / "types.json"
