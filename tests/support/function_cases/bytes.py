"""Functions over BYTES, and the ways between BYTES and VARCHAR."""

from __future__ import annotations

EXPECTED: dict[str, object] = {
    "TO_BYTES('0x616263', 'hex') = bytes": True,
    "FROM_BYTES(bytes, 'hex') || FROM_BYTES(bytes, 'utf8') || FROM_BYTES(bytes, 'base64')": "616263abcYWJj",
    "FROM_BYTES(TO_BYTES('aé', 'utf8'), 'ascii')": "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
    "ENCODE('YWJj', 'base64', 'hex')": "616263",
    "ENCODE('X''6a6B''', 'hex', 'ascii')": "jk",
    "ENCODE('0x6a6', 'hex', 'base64')": "BqY=",
    "COALESCE(ENCODE('6a6', 'hex', 'utf8'), ENCODE('X''6a', 'hex', 'utf8'), ENCODE('0x0x', 'hex', 'utf8'))": None,
    "ENCODE('0x', 'hex', 'utf8')": "",
    "LEN(bytes)": 3,
    "SUBSTRING(bytes, 2, 5)": b"bc",
    "SUBSTRING(bytes, -2)": b"bc",
    "CONCAT(bytes, NULL, TO_BYTES('!', 'ascii'))": b"abc!",
    "CONCAT_WS(TO_BYTES('-', 'utf8'), bytes, NULL, bytes)": b"abc-abc",
    "LPAD(bytes, 5, TO_BYTES('xyz', 'utf8'))": b"xyabc",
    "RPAD(bytes, 8, TO_BYTES('xy', 'utf8'))": b"abcxyxyx",
    "RPAD(bytes, 2, TO_BYTES('xy', 'utf8'))": b"ab",
    "LPAD(bytes, -1, bytes)": None,
    "SPLIT(TO_BYTES('a.b..', 'utf8'), TO_BYTES('.', 'utf8'))": [b"a", b"b", b"", b""],
    "SPLIT(bytes, TO_BYTES('', 'utf8'))": [b"a", b"b", b"c"],
    "INT_FROM_BYTES(TO_BYTES('FFFFFFFE', 'hex'))": -2,
    "INT_FROM_BYTES(TO_BYTES('01000000', 'hex'), 'LITTLE_ENDIAN')": 1,
    "INT_FROM_BYTES(bytes)": None,
    "BIGINT_FROM_BYTES(TO_BYTES('FFFFFFFFFFFFFF00', 'hex'))": -256,
    "DOUBLE_FROM_BYTES(TO_BYTES('C004000000000000', 'hex'))": -2.5,
    "DOUBLE_FROM_BYTES(TO_BYTES('9A9999999999B93F', 'hex'), 'LITTLE_ENDIAN')": 0.1,
}
