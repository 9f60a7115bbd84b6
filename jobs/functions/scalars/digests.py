"""MD5, SHA1 and SHA256 of a VARCHAR or BYTES, as hexadecimal text in lower case. A text is hashed as UTF-8."""

from __future__ import annotations

from strandline.jobs.functions.scalars.contract import Scalar, Types, count
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType


def _bytes_or_text(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    if types[0].base not in (BaseType.VARCHAR, BaseType.BYTES, BaseType.NULL):
        raise TypeMismatch(f"argument 1 of {name} must be VARCHAR or BYTES, not {types[0]}")
    return (t.VARCHAR if types[0].base is BaseType.NULL else types[0],), t.VARCHAR


DIGESTS = (
    Scalar("MD5", _bytes_or_text, "md5"),
    Scalar("SHA1", _bytes_or_text, "sha1"),
    Scalar("SHA256", _bytes_or_text, "sha2({0}, 256)", "sha256({0})"),
)
