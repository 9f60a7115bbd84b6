"""Functions over VARCHAR. Characters are counted, not bytes, and positions count from 1.

A character is a code point of Unicode, also where several make one sign for the eye.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Types, count, takes, takes_any_number
from strandline.jobs.functions.scalars.domains import MOST_CHARACTERS, too_long, too_often
from strandline.jobs.functions.scalars.letters import lower_spark, upper_spark
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType

_TEXT = takes(t.VARCHAR, t.VARCHAR)
_TEST = takes(t.BOOLEAN, t.VARCHAR, t.VARCHAR)
_PAD = takes(t.VARCHAR, t.VARCHAR, t.INT, t.VARCHAR)

# The first character: a negative position counts from the end, one before the text begins means its beginning.
_START = "CASE WHEN {1} < 0 THEN greatest(length({0}) + {1} + 1, 1) WHEN {1} = 0 THEN 1 WHEN {1} > 0 THEN {1} END"
_LENGTH = "CASE WHEN {2} > 0 THEN {2} WHEN {2} <= 0 THEN 0 END"
# NULL for an empty padding and for a negative length.
# The least: an engine computes what is constant even where a CASE has another branch.
_LEAST = f"least({{1}}, {MOST_CHARACTERS})"
_TOO_OFTEN = f"CAST(length({{0}}) AS BIGINT) * {{1}} > {MOST_CHARACTERS}"
_PADDED = "CASE WHEN {1} >= 0 AND {2} <> '' THEN FUNCTION({0}, LEAST, {2}) END".replace("LEAST", _LEAST)


def _substring(arguments: Sequence[str]) -> str:
    parts = [_START, _LENGTH][: len(arguments) - 1]
    return f"substring({arguments[0]}, {', '.join(part.format(*arguments) for part in parts)})"


def _instr_spark(arguments: Sequence[str]) -> str:
    if len(arguments) == 2:
        return f"coalesce(instr({arguments[0]}, {arguments[1]}), 0)"
    places = "filter(sequence(1, greatest(length({0}), 1)), __x -> substring({0}, __x, length({1})) = {1} AND {2})"
    return _nth_place(places, "try_element_at({0}, nullif({1}, 0))", arguments)


def _instr_duckdb(arguments: Sequence[str]) -> str:
    if len(arguments) == 2:
        return f"coalesce(CAST(instr({arguments[0]}, {arguments[1]}) AS INTEGER), 0)"
    places = "list_filter(range(1, length({0}) + 1), lambda __x: substring({0}, __x, length({1})) = {1} AND {2})"
    return f"CAST({_nth_place(places, 'list_extract({0}, {1})', arguments)} AS INTEGER)"


def _nth_place(places: str, element: str, arguments: Sequence[str]) -> str:
    """The n-th place from a position on: forwards, or backwards when the position counts from the end."""
    text, searched, position, *rest = arguments
    nth = rest[0] if rest else "1"
    after = places.format(text, searched, f"__x >= {position}")
    before = places.format(text, searched, f"__x <= length({text}) + {position} + 1")
    return (
        f"CASE WHEN {text} IS NULL OR {searched} IS NULL THEN 0 WHEN {position} IS NULL OR {nth} IS NULL THEN NULL"
        f" WHEN {position} > 0 AND {nth} > 0 THEN coalesce({element.format(after, nth)}, 0)"
        f" WHEN {position} < 0 AND {nth} > 0 THEN coalesce({element.format(before, f'-({nth})')}, 0) ELSE 0 END"
    )


# Words are what white space of ASCII separates.
_WORDS = "'[ \\t\\n\\x0B\\f\\r]+|[^ \\t\\n\\x0B\\f\\r]+'"


def _initcap_spark(arguments: Sequence[str]) -> str:
    words = f"regexp_extract_all({arguments[0]}, {_WORDS.replace(chr(92), chr(92) * 2)}, 0)"
    word = f"{upper_spark('substring(__x, 1, 1)')} || {lower_spark('substring(__x, 2)')}"
    return f"array_join(transform({words}, __x -> {word}), '')"


def _initcap_duckdb(arguments: Sequence[str]) -> str:
    word = "upper(substring(__x, 1, 1)) || lower(substring(__x, 2))"
    return f"array_to_string(list_transform(regexp_extract_all({arguments[0]}, {_WORDS}), lambda __x: {word}), '')"


def _elt(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, None)
    return takes(t.VARCHAR, t.INT, *([t.VARCHAR] * (len(types) - 1)))(name, types)


def _elt_text(arguments: Sequence[str]) -> str:
    number, *texts = arguments
    return f"CASE {number} {' '.join(f'WHEN {n} THEN {text}' for n, text in enumerate(texts, 1))} END"


def _field_text(arguments: Sequence[str]) -> str:
    searched, *texts = arguments
    return f"CASE {searched} {' '.join(f'WHEN {text} THEN {n}' for n, text in enumerate(texts, 1))} ELSE 0 END"


def _chr(name: str, types: Types) -> tuple[Types, SqlType]:
    """A code point, or its name in a Java text: `\\u004b`."""
    count(name, types, 1, 1)
    if types[0].base not in (BaseType.INT, BaseType.VARCHAR, BaseType.NULL):
        raise TypeMismatch(f"argument 1 of {name} must be INT or VARCHAR, not {types[0]}")
    return (t.INT if types[0].base is BaseType.NULL else types[0],), t.VARCHAR


# No character has these numbers: they are halves of others in UTF-16.
_IS_CODE = "{0} BETWEEN 0 AND 1114111 AND {0} NOT BETWEEN 55296 AND 57343"

TEXT = (
    Scalar("UCASE", _TEXT, lambda texts: upper_spark(texts[0]), "upper", aliases=("UPPER",)),
    Scalar("LCASE", _TEXT, lambda texts: lower_spark(texts[0]), "lower", aliases=("LOWER",)),
    Scalar(
        "LEN",
        takes(t.INT, t.VARCHAR),
        "length",
        "CAST(length({0}) AS INTEGER)",
        aliases=("LENGTH",),
        instead=((BaseType.BYTES, "BYTES_LEN"),),
    ),
    # Of spaces, and of nothing else that is blank.
    *(Scalar(name, _TEXT, name.lower(), f"{name.lower()}({{0}}, ' ')") for name in ("TRIM", "LTRIM", "RTRIM")),
    Scalar(
        "SUBSTRING",
        takes(t.VARCHAR, t.VARCHAR, t.INT, t.INT, optional=1),
        _substring,
        aliases=("SUBSTR",),
        instead=((BaseType.BYTES, "BYTES_SUBSTRING"),),
    ),
    Scalar("LEFT", takes(t.VARCHAR, t.VARCHAR, t.INT), "substring({0}, 1, greatest({1}, 0))"),
    Scalar("RIGHT", takes(t.VARCHAR, t.VARCHAR, t.INT), "right({0}, greatest({1}, 0))"),
    # NULL arguments are left out, as in ksqlDB.
    Scalar(
        "CONCAT",
        takes_any_number(t.VARCHAR, t.VARCHAR, 1),
        "concat_ws('', {args})",
        "concat({args})",
        instead=((BaseType.BYTES, "BYTES_CONCAT"),),
    ),
    Scalar(
        "CONCAT_WS",
        takes_any_number(t.VARCHAR, t.VARCHAR, 2),
        "concat_ws",
        instead=((BaseType.BYTES, "BYTES_CONCAT_WS"),),
    ),
    Scalar("REPLACE", takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR), "replace"),
    Scalar("INSTR", takes(t.INT, t.VARCHAR, t.VARCHAR, t.INT, t.INT, optional=2), _instr_spark, _instr_duckdb),
    Scalar(
        "LPAD", _PAD, _PADDED.replace("FUNCTION", "lpad"), instead=((BaseType.BYTES, "BYTES_LPAD"),), fails=too_long
    ),
    Scalar(
        "RPAD", _PAD, _PADDED.replace("FUNCTION", "rpad"), instead=((BaseType.BYTES, "BYTES_RPAD"),), fails=too_long
    ),
    # DuckDB's own keeps together what is one sign for the eye.
    Scalar("STARTS_WITH", _TEST, "startswith", "starts_with", aliases=("PREFIX",)),
    Scalar("ENDS_WITH", _TEST, "endswith", "suffix", aliases=("SUFFIX",)),
    Scalar(
        "REPEAT",
        takes(t.VARCHAR, t.VARCHAR, t.INT),
        f"repeat({{0}}, CASE WHEN {_TOO_OFTEN} OR {{1}} < 0 THEN 0 ELSE {{1}} END)",
        fails=too_often,
    ),
    Scalar("TOO_OFTEN", takes(t.BOOLEAN, t.VARCHAR, t.INT), f"({_TOO_OFTEN})", hidden=True),
    Scalar("OCTET_LENGTH", takes(t.INT, t.VARCHAR), "octet_length", "CAST(strlen({0}) AS INTEGER)"),
    Scalar("REVERSE", _TEXT, "reverse", "array_to_string(list_reverse(str_split({0}, '')), '')"),
    Scalar("INITCAP", _TEXT, _initcap_spark, _initcap_duckdb),
    Scalar("ELT", _elt, _elt_text),
    Scalar("FIELD", takes_any_number(t.INT, t.VARCHAR, 2), _field_text),
    Scalar(
        "CHR",
        _chr,
        f"CASE WHEN {_IS_CODE} THEN decode(unhex(lpad(hex({{0}}), 8, '0')), 'UTF-32') END",
        f"CASE WHEN {_IS_CODE} THEN chr({{0}}) END",
        instead=((BaseType.VARCHAR, "CHR_OF_TEXT"),),
    ),
    Scalar(
        "CHR_OF_TEXT",
        _chr,
        "CASE WHEN regexp_like({0}, '^(\\\\\\\\u[0-9a-fA-F]{{4}}){{1,2}}\\\\z')"
        " THEN decode(unhex(replace({0}, '\\\\u', '')), 'UTF-16BE') END",
        "CASE WHEN regexp_full_match({0}, '\\\\u[0-9a-fA-F]{{4}}') THEN chr(CAST('0x' || {0}[3:6] AS INTEGER))"
        " WHEN regexp_full_match({0}, '(\\\\u[0-9a-fA-F]{{4}}){{2}}')"
        " THEN chr(CAST((CAST('0x' || {0}[3:6] AS INTEGER) - 55296) * 1024"
        " + CAST('0x' || {0}[9:12] AS INTEGER) - 56320 + 65536 AS INTEGER)) END",
        hidden=True,
    ),
    # A pattern of LIKE whose escape stands only where Spark takes it: before %, _ and itself.
    Scalar(
        "LIKE_PATTERN",
        _TEXT,
        r"regexp_replace({0}, '(\\\\[%_\\\\])|\\\\', '$1')",
        r"regexp_replace({0}, '(\\[%_\\])|\\', '\1', 'g')",
        hidden=True,
    ),
    Scalar(
        "SPLIT",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR),
        "CASE WHEN {1} = '' AND {0} <> '' THEN regexp_extract_all({0}, '(?s).', 0)"
        " ELSE split({0}, concat('\\\\Q', {1}, '\\\\E')) END",
        "CASE WHEN {1} IS NOT NULL THEN str_split({0}, {1}) END",
        aliases=("STRING_SPLIT", "STR_SPLIT"),
        instead=((BaseType.BYTES, "BYTES_SPLIT"),),
    ),
)
