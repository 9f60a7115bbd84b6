"""The checksum of an object's members: what stands in files must not change."""

from __future__ import annotations

import pytest

from strandline.state_store.stored_state import of_members


@pytest.mark.parametrize(("ascii_only", "found"), [(True, 893_852_060), (False, 1_581_618_926)])
def test_the_members_count_by_value(ascii_only: bool, found: int) -> None:
    members = {"topic": "Größe", "partitions": 3, "definition": {"b": [1, None], "a": 1.5}}
    assert of_members(members, ascii_only=ascii_only) == found
    assert of_members(dict(reversed(members.items())), ascii_only=ascii_only) == found
    assert of_members({**members, "partitions": 4}, ascii_only=ascii_only) != found
