"""JSON text without loss: numbers keep every digit, in both directions."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from math import isfinite

_string = json.JSONEncoder(ensure_ascii=False).encode


def dumps(value: object) -> str:
    """Compact JSON: decimals as plain numbers, bytes as base64, values of other types as their text.

    Raises:
        ValueError: a float is NaN or infinite: JSON has no such number.
    """
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case float() if not isfinite(value):
            raise ValueError("NaN and Infinity are not JSON numbers")
        case float():
            return repr(value)
        case Decimal():
            # A huge exponent written out in full would be gigabytes of zeros.
            return format(value, "f") if -100 < value.adjusted() < 100 else str(value)
        case bytes():
            return _string(b64encode(value).decode())
        case dict():
            members = (f"{_string(str(name))}:{dumps(inner)}" for name, inner in value.items())
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(dumps(inner) for inner in value) + "]"
        case _:
            return _string(str(value))


def loads_exact(text: bytes) -> object:
    """The parsed text; numbers with a fraction or exponent are Decimals.

    Only for text that orjson accepted: it is the stricter parser, and decides what is JSON.

    Raises:
        ValueError: a number too long to be one, or nested too deeply.
    """
    try:
        return json.loads(text.decode(), parse_float=Decimal)
    except RecursionError:
        raise ValueError("nested too deeply") from None
