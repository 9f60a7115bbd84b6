"""The names of classes and fields that fingerprints hash.

A fingerprint stands in every commit of a view, and the digest of a shared stage in the name of its table. Both hash the
names of classes and fields beside their values, so those names are a persisted format: where a name has changed in the
code, the old one stays here.
"""

from __future__ import annotations

from strandline.jobs.model.types import BaseType

_FIELDS = {("SqlType", "base"): "kind", ("Relation", "storage"): "kind", ("TimeWindow", "type"): "kind"}


def field_name(value: object, field: str) -> str:
    """The name of a dataclass's field in a hash."""
    return _FIELDS.get((type(value).__name__, field), field)


def plain_text(value: object) -> str:
    """A value that is neither tree, dataclass nor tuple, as it stands in a hash."""
    if isinstance(value, BaseType):
        return f"<Kind.{value.name}: {value.value!r}>"
    return repr(value)
