"""The meaning of a definition: what statements that say the same have in common, however they say it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.stewardship import without_stewardship

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Definition


def same(left: Definition, right: Definition) -> bool:
    """True if two definitions have the same meaning; their text and pipeline do not count."""
    return _meaning(left) == _meaning(right)


def gives_the_same_rows(left: Definition, right: Definition) -> bool:
    """True if two definitions differ at most in their stewardship, on which no row depends."""
    return same(_unowned(left), _unowned(right))


def _unowned(definition: Definition) -> Definition:
    if isinstance(definition, InsertQuery):
        return definition
    return replace(definition, options=without_stewardship(definition.options))


def _meaning(definition: Definition) -> Definition:
    if isinstance(definition, Source):
        return replace(definition, sql="", pipeline="", added=Source.added)
    if isinstance(definition, View):
        definition = replace(definition, first_stage=View.first_stage)
    return replace(definition, sql="", pipeline="", query="", columns_seen={})  # the fingerprint stands for its meaning
