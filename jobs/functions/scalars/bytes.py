"""Functions over BYTES, and conversions between BYTES and VARCHAR. Positions count bytes, from 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.jobs.functions.scalars.contract import (
    Scalar,
    Template,
    Types,
    count,
    quoted,
    takes,
    takes_any_number,
    unquoted,
)
from strandline.jobs.functions.scalars.domains import MOST_CHARACTERS, too_long
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import BaseType, SqlType

ENCODINGS = ("hex", "utf8", "ascii", "base64")
_SPELLED = {"utf-8": "utf8", "us-ascii": "ascii"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Hexadecimal is digits in pairs, as they are or in X'…'; after 0x a leading zero may be missing. \\z is the end of the
# text: Java's $ would also be before a last line break. No group is repeated, which Java reads by recursion.
_HEX = "^(0x[0-9a-fA-F]*|[xX]'[0-9a-fA-F]*'|[0-9a-fA-F]*)\\z"
_POSTGRES_HEX = r"^\\x[0-9a-fA-F]*\z"
# The last group of base64 may be short, and then need not be filled up with signs of equality.
_BASE64 = "^[A-Za-z0-9+/]*={{0,2}}\\z"
_IN_GROUPS = "(length({0}) % 4 = 0 OR (length({0}) % 4 <> 1 AND NOT contains({0}, '=')))"
_FILLED = "rpad({{0}}, CAST((length({{0}}) + 3) {} 4 * 4 AS INT), '=')"


def _from_hex(matches: str, expression: str, digits: str) -> str:
    paired = f"(left({{0}}, 2) = '0x' OR length({digits}) % 2 = 0)"
    return f"CASE WHEN {matches}({{0}}, {expression}) AND {paired} THEN unhex({digits}) END"


def _from_base64(matches: str, expression: str, decode: str, divide: str) -> str:
    filled = _FILLED.format(divide)
    return f"CASE WHEN {matches}({{0}}, {expression}) AND {_IN_GROUPS} THEN {decode}({filled}) END"


_TO_BYTES: dict[str, dict[str, str]] = {
    "spark": {
        "hex": _from_hex("regexp_like", quoted(_HEX, "spark"), "regexp_replace({0}, '^0x|^[xX]\\'|\\'$', '')"),
        "utf8": "encode({0}, 'UTF-8')",
        "ascii": "encode(regexp_replace({0}, '[^\\\\x00-\\\\x7f]', '?'), 'UTF-8')",
        "base64": _from_base64("regexp_like", quoted(_BASE64, "spark"), "unbase64", "div"),
    },
    "duckdb": {
        "hex": _from_hex("regexp_matches", quoted(_HEX, "duckdb"), "regexp_replace({0}, '^0x|^[xX]''|''$', '', 'g')"),
        "utf8": "encode({0})",
        "ascii": "encode(regexp_replace({0}, '[^\\x00-\\x7f]', '?', 'g'))",
        "base64": _from_base64("regexp_matches", quoted(_BASE64, "duckdb"), "from_base64", "//"),
    },
}
_FROM_BYTES: dict[str, dict[str, str]] = {
    "spark": {
        "hex": "hex({0})",
        "utf8": "try_validate_utf8(CAST({0} AS STRING))",
        "ascii": f"regexp_replace(decode({{0}}, 'ISO-8859-1'), '[^\\\\x00-\\\\x7f]', '{_REPLACEMENT}')",
        "base64": "base64({0})",
    },
    "duckdb": {
        "hex": "hex({0})",
        "utf8": "try(decode({0}))",
        "ascii": "array_to_string(list_transform(regexp_extract_all(hex({0}), '..'),"
        f" lambda __x: CASE WHEN __x < '80' THEN chr(CAST('0x' || __x AS INTEGER)) ELSE '{_REPLACEMENT}' END), '')",
        "base64": "base64({0})",
    },
}


def _coded(ways: dict[str, dict[str, str]], dialect: str) -> Template:
    return lambda arguments: ways[dialect][_encoding(arguments[1], dialect)].format(arguments[0])


def _recoded(dialect: str) -> Template:
    """ENCODE(text, from, to): the bytes that a text stands for, as text in another encoding."""

    def write(arguments: Sequence[str]) -> str:
        source, target = (_encoding(argument, dialect) for argument in arguments[1:])
        text = _FROM_BYTES[dialect][target].format(_TO_BYTES[dialect][source].format(arguments[0]))
        return f"lower({text})" if target == "hex" else text

    return write


def _encoding(argument: str, dialect: str) -> str:
    return _known(unquoted(argument, dialect))


def _known(name: str | None) -> str:
    found = _SPELLED.get((name or "").lower(), (name or "").lower())
    if found not in ENCODINGS:
        raise InvalidQuery(f"{name!r} is not an encoding", hint=f"one of {', '.join(ENCODINGS)}")
    return found


def _check(literals: Sequence[str | None]) -> None:
    for name in literals[1:]:
        _known(name)


def _bytes_of_text(matches: str, dialect: str, digits: str, encoded: str) -> str:
    """NULL where a text with a backslash is no pairs of hexadecimal digits."""
    paired = f"{matches}({{0}}, {quoted(_POSTGRES_HEX, dialect)}) AND length({{0}}) % 2 = 0"
    plain = f"NOT contains({{0}}, {quoted(chr(92), dialect)})"
    return f"CASE WHEN {plain} THEN {encoded} WHEN {paired} THEN unhex({digits}) END"


def _joined_spark(arguments: Sequence[str]) -> str:
    return f"concat({', '.join(f'''coalesce({each}, X'')''' for each in arguments)})"


def _joined_duckdb(arguments: Sequence[str]) -> str:
    return "(" + " || ".join(f"coalesce({each}, ''::BLOB)" for each in arguments) + ")"


def _separated_spark(arguments: Sequence[str]) -> str:
    separator, *parts = arguments
    items = f"filter(array({', '.join(parts)}), __x -> __x IS NOT NULL)"
    step = f"CASE WHEN __y IS NULL THEN __x ELSE concat(__y, {separator}, __x) END"
    joined = f"aggregate({items}, CAST(NULL AS BINARY), (__y, __x) -> {step})"
    return f"CASE WHEN {separator} IS NOT NULL THEN coalesce({joined}, X'') END"


def _separated_duckdb(arguments: Sequence[str]) -> str:
    separator, *parts = arguments
    items = f"list_filter([{', '.join(parts)}], lambda __x: __x IS NOT NULL)"
    step = f"CASE WHEN __y IS NULL THEN __x ELSE __y || {separator} || __x END"
    joined = f"list_reduce({items}, lambda __y, __x: {step}, CAST(NULL AS BLOB))"
    return f"CASE WHEN {separator} IS NOT NULL THEN coalesce({joined}, ''::BLOB) END"


def _padded_duckdb(left: bool) -> Template:
    """DuckDB pads only text; bytes are repeated often enough, and cut."""

    def write(arguments: Sequence[str]) -> str:
        value, length, padding = arguments
        # The least: an engine computes what is constant even where a CASE has another branch.
        times = f"least({length}, {MOST_CHARACTERS}) // greatest(octet_length({padding}), 1) + 1"
        pad = f"array_slice(repeat({padding}, {times}), 1, {length} - octet_length({value}))"
        padded = f"{pad} || {value}" if left else f"{value} || {pad}"
        cut = f"array_slice({value}, 1, {length})"
        none = f"CASE WHEN {length} = 0 THEN ''::BLOB"
        made = f"{none} WHEN octet_length({value}) >= {length} THEN {cut} ELSE {padded} END"
        return f"CASE WHEN {value} IS NOT NULL AND {length} >= 0 AND octet_length({padding}) > 0 THEN {made} END"

    return write


_START = "CASE WHEN {1} < 0 THEN greatest(octet_length({0}) + {1} + 1, 1) WHEN {1} = 0 THEN 1 WHEN {1} > 0 THEN {1} END"
_LENGTH = "CASE WHEN {2} > 0 THEN {2} WHEN {2} <= 0 THEN 0 END"


def _substring_spark(arguments: Sequence[str]) -> str:
    parts = [_START, _LENGTH][: len(arguments) - 1]
    return f"substring({arguments[0]}, {', '.join(part.format(*arguments) for part in parts)})"


def _substring_duckdb(arguments: Sequence[str]) -> str:
    start = _START.format(*arguments)
    end = f"({start}) + ({_LENGTH.format(*arguments)}) - 1" if len(arguments) > 2 else f"octet_length({arguments[0]})"
    sliced = f"array_slice({arguments[0]}, {start}, {end})"
    none = f"CASE WHEN {arguments[0]} IS NULL THEN NULL"
    return f"{none} WHEN ({start}) > ({end}) THEN ''::BLOB WHEN ({start}) <= ({end}) THEN {sliced} END"


def _number(bits: int, dialect: str, finish: Callable[[str], str]) -> Template:
    """The whole number that `bits / 8` bytes stand for, in either byte order; NULL for more or fewer bytes."""

    def write(arguments: Sequence[str]) -> str:
        digits = f"hex({arguments[0]})"
        if len(arguments) > 1:
            pairs = f"regexp_extract_all({digits}, '..', 0)"
            turned = {
                "spark": f"array_join(reverse({pairs}), '')",
                "duckdb": f"array_to_string(list_reverse({pairs}), '')",
            }[dialect]
            order = arguments[1]
            digits = f"CASE {order} WHEN 'BIG_ENDIAN' THEN {digits} WHEN 'LITTLE_ENDIAN' THEN {turned} END"
        unsigned = {
            "spark": f"CAST(conv({digits}, 16, 10) AS DECIMAL(20, 0))",
            "duckdb": f"CAST('0x' || ({digits}) AS HUGEINT)",
        }[dialect]
        return f"CASE WHEN octet_length({arguments[0]}) = {bits // 8} THEN {finish(unsigned)} END"

    return write


def _signed(bits: int, sql_type: str) -> Callable[[str], str]:
    return lambda number: (
        f"CAST(CASE WHEN {number} >= {2 ** (bits - 1)} THEN {number} - {2**bits} ELSE {number} END AS {sql_type})"
    )


def _double(dialect: str) -> Callable[[str], str]:
    """IEEE 754, put together from sign, exponent and fraction: all steps are exact in DOUBLE."""
    whole = {"spark": "DECIMAL(20, 0)", "duckdb": "HUGEINT"}[dialect]
    divide = {"spark": "CAST(floor({0} / {1}) AS BIGINT)", "duckdb": "CAST(({0} // {1}) AS BIGINT)"}[dialect]

    def finish(number: str) -> str:
        exponent = f"({divide.format(number, f'CAST({2**52} AS {whole})')} % 2048)"
        fraction = f"CAST({number} % CAST({2**52} AS {whole}) AS DOUBLE)"
        sign = f"CASE WHEN {number} >= {2**63} THEN -1.0 ELSE 1.0 END"
        large = f"CASE WHEN {fraction} = 0 THEN CAST('Infinity' AS DOUBLE) ELSE CAST('NaN' AS DOUBLE) END"
        size = (
            f"CASE {exponent} WHEN 2047 THEN {large} WHEN 0 THEN {fraction} * power(2.0, -537) * power(2.0, -537)"
            f" ELSE ({2**52} + {fraction}) * power(CAST(2 AS DOUBLE), {exponent} - 1075) END"
        )
        return f"CAST({sign} AS DOUBLE) * {size}"

    return finish


def _from_bytes(name: str, bits: int, result: t.SqlType, finish: dict[str, Callable[[str], str]]) -> Scalar:
    return Scalar(
        name,
        takes(result, t.BYTES, t.VARCHAR, optional=1),
        _number(bits, "spark", finish["spark"]),
        _number(bits, "duckdb", finish["duckdb"]),
    )


_PAD = takes(t.BYTES, t.BYTES, t.INT, t.BYTES)
_PADDED = (
    "CASE WHEN {{1}} >= 0 AND octet_length({{2}}) > 0"
    f" THEN {{}}({{{{0}}}}, least({{{{1}}}}, {MOST_CHARACTERS}), {{{{2}}}}) END"
)

# 16 bytes as RFC 4122 writes them; of another number of bytes NULL.
_UUID = "CASE WHEN {length} = 16 THEN regexp_replace(lower(hex({{0}})), {groups}, {made}) END"


def _of_sixteen_bytes(name: str, types: Types) -> tuple[Types, SqlType]:
    """BYTES; without an argument the function would give another value each time."""
    if not types:
        raise InvalidQuery(
            f"{name}() gives another value each time, and a query gives the same rows of the same tables each time",
            hint="UUID(bytes) is the text of 16 bytes",
        )
    return takes(t.VARCHAR, t.BYTES)(name, types)


BYTES = (
    Scalar(
        "UUID",
        _of_sixteen_bytes,
        _UUID.format(length="length({0})", groups="'^(.{{8}})(.{{4}})(.{{4}})(.{{4}})'", made="'$1-$2-$3-$4-'"),
        _UUID.format(
            length="octet_length({0})", groups="'^(.{{8}})(.{{4}})(.{{4}})(.{{4}})'", made="'\\1-\\2-\\3-\\4-'"
        ),
    ),
    Scalar(
        "TO_BYTES",
        takes(t.BYTES, t.VARCHAR, t.VARCHAR),
        _coded(_TO_BYTES, "spark"),
        _coded(_TO_BYTES, "duckdb"),
        constant=(1,),
        check=_check,
    ),
    Scalar(
        "FROM_BYTES",
        takes(t.VARCHAR, t.BYTES, t.VARCHAR),
        _coded(_FROM_BYTES, "spark"),
        _coded(_FROM_BYTES, "duckdb"),
        constant=(1,),
        check=_check,
    ),
    Scalar(
        "ENCODE",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR),
        _recoded("spark"),
        _recoded("duckdb"),
        constant=(1, 2),
        check=_check,
    ),
    _from_bytes("INT_FROM_BYTES", 32, t.INT, {"spark": _signed(32, "INT"), "duckdb": _signed(32, "INTEGER")}),
    _from_bytes("BIGINT_FROM_BYTES", 64, t.BIGINT, {"spark": _signed(64, "BIGINT"), "duckdb": _signed(64, "BIGINT")}),
    _from_bytes("DOUBLE_FROM_BYTES", 64, t.DOUBLE, {"spark": _double("spark"), "duckdb": _double("duckdb")}),
    # CAST of a text: PostgreSQL's \x and digits, or the text's own UTF-8; a backslash anywhere else means nothing.
    Scalar(
        "TEXT_BYTES",
        takes(t.BYTES, t.VARCHAR),
        _bytes_of_text("regexp_like", "spark", "substring({0}, 3)", "encode({0}, 'UTF-8')"),
        _bytes_of_text("regexp_matches", "duckdb", "{0}[3:]", "encode({0})"),
        hidden=True,
    ),
    # Functions over VARCHAR become these when they are given BYTES.
    Scalar("BYTES_LEN", takes(t.INT, t.BYTES), "octet_length", "CAST(octet_length({0}) AS INTEGER)", hidden=True),
    Scalar(
        "BYTES_SUBSTRING",
        takes(t.BYTES, t.BYTES, t.INT, t.INT, optional=1),
        _substring_spark,
        _substring_duckdb,
        hidden=True,
    ),
    Scalar(
        "BYTES_LPAD",
        _PAD,
        _PADDED.format("lpad"),
        _padded_duckdb(left=True),
        hidden=True,
        fails=too_long,
        fault=RowFault.TOO_LARGE,
    ),
    Scalar(
        "BYTES_RPAD",
        _PAD,
        _PADDED.format("rpad"),
        _padded_duckdb(left=False),
        hidden=True,
        fails=too_long,
        fault=RowFault.TOO_LARGE,
    ),
    Scalar("BYTES_CONCAT", takes_any_number(t.BYTES, t.BYTES, 1), _joined_spark, _joined_duckdb, hidden=True),
    Scalar("BYTES_CONCAT_WS", takes_any_number(t.BYTES, t.BYTES, 2), _separated_spark, _separated_duckdb, hidden=True),
    # Bytes are split as the text that has a character for each of them.
    Scalar(
        "BYTES_SPLIT",
        takes(t.array(t.BYTES), t.BYTES, t.BYTES),
        "CASE WHEN octet_length({1}) = 0 AND octet_length({0}) > 0"
        " THEN transform(regexp_extract_all(hex({0}), '..', 0), __x -> unhex(__x))"
        " ELSE transform(split(decode({0}, 'ISO-8859-1'), concat('\\\\Q', decode({1}, 'ISO-8859-1'), '\\\\E')),"
        " __x -> encode(__x, 'ISO-8859-1')) END",
        "CASE WHEN {1} IS NULL THEN NULL WHEN octet_length({1}) = 0 AND octet_length({0}) > 0"
        " THEN list_transform(regexp_extract_all(hex({0}), '..'), lambda __x: unhex(__x))"
        " ELSE list_transform(str_split(regexp_replace(hex({0}), '(..)', '\\1,', 'g'),"
        " regexp_replace(hex({1}), '(..)', '\\1,', 'g')), lambda __x: unhex(replace(__x, ',', ''))) END",
        hidden=True,
    ),
)


# MD5, SHA1 and SHA256 of a VARCHAR or BYTES, as hexadecimal text in lower case. A text is hashed as UTF-8.


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
