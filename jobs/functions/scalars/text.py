"""Functions over VARCHAR. Characters are counted, not bytes, and positions count from 1.

A character is a code point of Unicode, also where several make one sign for the eye.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Types, Written, count, quoted, takes, takes_any_number
from strandline.jobs.functions.scalars.domains import MOST_CHARACTERS, too_long, too_often
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import BaseType, SqlType

# Upper and lower case: each letter becomes one letter, whatever stands beside it, as DuckDB and Unicode 15 have it.
#
# Spark asks ICU, which makes several letters of some (`ß` is SS there), looks at the neighbours of `Σ`, and knows
# letters that are younger. Where a text has a letter of those, Spark's text of a call takes the letters one by one.

_UNCHANGED_UPPER = (
    *(0x149, 0x19B, 0x1F0, 0x264, 0x390, 0x3B0, 0x587, 0x1C8A, *range(0x1E96, 0x1E9B)),
    *(0x1F50, 0x1F52, 0x1F54, 0x1F56, *range(0x1F88, 0x1F90), *range(0x1F98, 0x1FA0), *range(0x1FA8, 0x1FB0)),
    *(0x1FB2, 0x1FB4, 0x1FB6, 0x1FB7, 0x1FBC, 0x1FC2, 0x1FC4, 0x1FC6, 0x1FC7, 0x1FCC, 0x1FD2, 0x1FD3, 0x1FD6, 0x1FD7),
    *(0x1FE2, 0x1FE3, 0x1FE4, 0x1FE6, 0x1FE7, 0x1FF2, 0x1FF4, 0x1FF6, 0x1FF7, 0x1FFC),
    *(0xA7CD, 0xA7CF, 0xA7D3, 0xA7D5, 0xA7DB, *range(0xFB00, 0xFB07), *range(0xFB13, 0xFB18)),
    *(*range(0x10D70, 0x10D86), *range(0x16EBB, 0x16ED4)),
)
_OTHER_UPPER = {
    0xDF: 0x1E9E,
    **{small: small + 8 for first in (0x1F80, 0x1F90, 0x1FA0) for small in range(first, first + 8)},
    **{0x1FB3: 0x1FBC, 0x1FC3: 0x1FCC, 0x1FF3: 0x1FFC},
}
_UNCHANGED_LOWER = (
    *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC),
    *(*range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)),
)
_OTHER_LOWER = {0x130: 0x69, 0x3A3: 0x3C3}


def _by_letter(function: str, text: str, unchanged: tuple[int, ...], other: dict[int, int]) -> str:
    special = "".join(map(chr, (*unchanged, *other)))
    any_special = "[" + "".join(f"\\x{{{ord(each):x}}}" for each in special) + "]"
    source, target = ("".join(map(chr, codes)) for codes in (other, other.values()))
    one = (
        f"CASE WHEN contains({quoted(special, 'spark')}, __l)"
        f" THEN translate(__l, {quoted(source, 'spark')}, {quoted(target, 'spark')}) ELSE {function}(__l) END"
    )
    each = f"array_join(transform(regexp_extract_all({text}, '(?s).', 0), __l -> {one}), '')"
    return f"CASE WHEN regexp_like({text}, {quoted(any_special, 'spark')}) THEN {each} ELSE {function}({text}) END"


def upper_spark(text: str) -> str:
    """The text in capital letters, as Spark writes it; DuckDB's is `upper`."""
    return _by_letter("upper", text, _UNCHANGED_UPPER, _OTHER_UPPER)


def lower_spark(text: str) -> str:
    """The text in small letters, as Spark writes it; DuckDB's is `lower`."""
    return _by_letter("lower", text, _UNCHANGED_LOWER, _OTHER_LOWER)


_TEXT = takes(t.VARCHAR, t.VARCHAR)

# Functions over URLs, read by the expression of RFC 3986, Appendix B; parameters as HTML forms write them.

# Groups: 2 scheme, 4 authority (3 with its slashes), 5 path, 7 query (6 with its mark), 9 fragment (8 with its mark).
_URL = "^(([^:/?#]+):)?(//([^/?#]*))?([^?#]*)(\\\\?([^#]*))?(#(.*))?$"
_FORBIDDEN = '[\\\\s<>"{}|^`\\\\\\\\]'


def _expression(text: str, dialect: str) -> str:
    return f"'{text}'" if dialect == "spark" else f"'{text.replace(chr(92) * 2, chr(92))}'"


# A % that two hexadecimal digits do not follow.
_BROKEN = "%([^0-9a-fA-F]|[0-9a-fA-F][^0-9a-fA-F]|[0-9a-fA-F]?$)"
_NO_UTF8 = "\N{REPLACEMENT CHARACTER}"


def _decoded(text: str, dialect: str) -> str:
    """The text that was encoded; NULL where it was not, or where its bytes are no UTF-8."""
    if dialect == "spark":
        # Java puts a sign in the place of bytes that are no UTF-8; the text may have that sign itself.
        without = f"regexp_replace({text}, '(?i)%EF%BF%BD|{_NO_UTF8}', 'x')"
        return f"CASE WHEN NOT contains(try_url_decode({without}), '{_NO_UTF8}') THEN try_url_decode({text}) END"
    broken = f"regexp_matches({text}, '{_BROKEN}', 's')"
    return f"CASE WHEN NOT {broken} THEN try(url_decode(replace({text}, '+', ' '))) END"


def _part(dialect: str, group: int, *, marked: int | None = None, decoded: bool = False) -> Written:
    """One group of the expression; `marked`: the group that tells whether the part is there at all."""
    matches = {"spark": "regexp_like", "duckdb": "regexp_matches"}[dialect]
    url = _expression(_URL, dialect)

    def write(arguments: Sequence[str]) -> str:
        text = arguments[0]
        found = f"regexp_extract({text}, {url}, {group})"
        there = f" AND regexp_extract({text}, {url}, {marked}) <> ''" if marked is not None else ""
        valid = f"NOT {matches}({text}, {_expression(_FORBIDDEN, dialect)})"
        return f"CASE WHEN {valid}{there} THEN {_decoded(found, dialect) if decoded else found} END"

    return write


def _of_authority(dialect: str, expression: str, group: int) -> Written:
    """A part of the authority: `user@host:port`."""
    authority = _part(dialect, 4, marked=3)
    pattern = _expression(expression, dialect)

    def write(arguments: Sequence[str]) -> str:
        return f"nullif(regexp_extract({authority(arguments)}, {pattern}, {group}), '')"

    return write


_HOST = "^(.*@)?([^@]*?)(:[0-9]*)?$"
_PORT = ":([0-9]+)$"


def _parameter(dialect: str) -> Written:
    query = _part(dialect, 7, marked=6)

    def write(arguments: Sequence[str]) -> str:
        text = query(arguments)
        if dialect == "spark":
            name = _decoded("split(__x, '=', 2)[0]", dialect)
            value = _decoded("try_element_at(split(__x, '=', 2), 2)", dialect)
            value = f"CASE WHEN contains(__x, '=') THEN {value} ELSE '' END"
            pairs = f"filter(split({text}, '&'), __x -> {name} = {arguments[1]})"
            return f"try_element_at(transform({pairs}, __x -> {value}), 1)"
        name = _decoded("str_split(__x, '=')[1]", dialect)
        value = _decoded("regexp_extract(__x, '=(.*)$', 1)", dialect)
        pairs = f"list_filter(str_split({text}, '&'), lambda __x: {name} = {arguments[1]})"
        return f"list_transform({pairs}, lambda __x: {value})[1]"

    return write


def _both(name: str, group: int, marked: int | None, *, decoded: bool = False) -> Scalar:
    spark, duckdb = (_part(dialect, group, marked=marked, decoded=decoded) for dialect in ("spark", "duckdb"))
    return Scalar(name, _TEXT, spark, duckdb)


URLS = (
    Scalar(
        "URL_ENCODE_PARAM",
        _TEXT,
        "url_encode",
        "replace(replace(replace(url_encode({0}), '%20', '+'), '~', '%7E'), '%2A', '*')",
    ),
    Scalar("URL_DECODE_PARAM", _TEXT, _decoded("{0}", "spark"), _decoded("{0}", "duckdb")),
    _both("URL_EXTRACT_PROTOCOL", 2, 1),
    Scalar("URL_EXTRACT_HOST", _TEXT, _of_authority("spark", _HOST, 2), _of_authority("duckdb", _HOST, 2)),
    Scalar(
        "URL_EXTRACT_PORT",
        takes(t.INT, t.VARCHAR),
        _of_authority("spark", _PORT, 1),
        _of_authority("duckdb", _PORT, 1),
        exact=True,
    ),
    _both("URL_EXTRACT_PATH", 5, None),
    _both("URL_EXTRACT_QUERY", 7, 6, decoded=True),
    _both("URL_EXTRACT_FRAGMENT", 9, 8, decoded=True),
    Scalar("URL_EXTRACT_PARAMETER", takes(t.VARCHAR, t.VARCHAR, t.VARCHAR), _parameter("spark"), _parameter("duckdb")),
)


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


_TRIMMED = {"TRIM": "BOTH", "LTRIM": "LEADING", "RTRIM": "TRAILING"}


def _trim(dialect: str, name: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        text, taken = [*arguments, "' '"][:2]
        if dialect == "spark":
            return f"trim({_TRIMMED[name]} {taken} FROM {text})"
        return f"{name.lower()}({text}, {taken})"

    return write


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
        instead=((BaseType.BYTES, "BYTES_LEN"), (BaseType.ARRAY, "ARRAY_LENGTH"), (BaseType.MAP, "MAP_LENGTH")),
    ),
    # Of spaces, and of nothing else that is blank; or of any of the characters of a text.
    *(
        Scalar(name, takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, optional=1), _trim("spark", name), _trim("duckdb", name))
        for name in ("TRIM", "LTRIM", "RTRIM")
    ),
    Scalar(
        "SUBSTRING",
        takes(t.VARCHAR, t.VARCHAR, t.INT, t.INT, optional=1),
        _substring,
        aliases=("SUBSTR",),
        instead=((BaseType.BYTES, "BYTES_SUBSTRING"),),
    ),
    # Of a negative number all but so many characters at the other end, as in PostgreSQL.
    Scalar(
        "LEFT",
        takes(t.VARCHAR, t.VARCHAR, t.INT),
        "substring({0}, 1, CASE WHEN {1} < 0 THEN greatest(length({0}) + {1}, 0) ELSE {1} END)",
    ),
    Scalar(
        "RIGHT",
        takes(t.VARCHAR, t.VARCHAR, t.INT),
        "CASE WHEN {1} < 0 THEN substring({0}, 1 - greatest({1}, -1000000000)) ELSE right({0}, {1}) END",
    ),
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
    # SQL's: of NULL it is NULL, where ksqlDB's INSTR is 0.
    Scalar("STRPOS", takes(t.INT, t.VARCHAR, t.VARCHAR), "instr", "CAST(instr({0}, {1}) AS INTEGER)"),
    Scalar("INSTR", takes(t.INT, t.VARCHAR, t.VARCHAR, t.INT, t.INT, optional=2), _instr_spark, _instr_duckdb),
    Scalar(
        "LPAD",
        _PAD,
        _PADDED.replace("FUNCTION", "lpad"),
        instead=((BaseType.BYTES, "BYTES_LPAD"),),
        fails=too_long,
        fault=RowFault.TOO_LARGE,
    ),
    Scalar(
        "RPAD",
        _PAD,
        _PADDED.replace("FUNCTION", "rpad"),
        instead=((BaseType.BYTES, "BYTES_RPAD"),),
        fails=too_long,
        fault=RowFault.TOO_LARGE,
    ),
    # DuckDB's own keeps together what is one sign for the eye.
    Scalar("STARTS_WITH", _TEST, "startswith", "starts_with", aliases=("PREFIX",)),
    Scalar("ENDS_WITH", _TEST, "endswith", "suffix", aliases=("SUFFIX",)),
    Scalar(
        "REPEAT",
        takes(t.VARCHAR, t.VARCHAR, t.INT),
        f"repeat({{0}}, CASE WHEN {_TOO_OFTEN} OR {{1}} < 0 THEN 0 ELSE {{1}} END)",
        fails=too_often,
        fault=RowFault.TOO_LARGE,
    ),
    Scalar("TOO_OFTEN", takes(t.BOOLEAN, t.VARCHAR, t.INT), f"({_TOO_OFTEN})", hidden=True),
    Scalar(
        "OCTET_LENGTH",
        takes(t.INT, t.VARCHAR),
        "octet_length",
        "CAST(strlen({0}) AS INTEGER)",
        instead=((BaseType.BYTES, "BYTES_LEN"),),
    ),
    Scalar(
        "REVERSE",
        _TEXT,
        "reverse",
        "array_to_string(list_reverse(str_split({0}, '')), '')",
        instead=((BaseType.ARRAY, "ARRAY_REVERSE"),),
    ),
    Scalar("CONTAINS", _TEST, "contains", instead=((BaseType.ARRAY, "LIST_CONTAINS"),)),
    # Of a letter that is to be replaced twice, the first place counts; one without a new letter goes.
    Scalar("TRANSLATE", takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR), "translate"),
    # The code point of the first character; 0 of a text without one.
    Scalar("ASCII", takes(t.INT, t.VARCHAR), "ascii"),
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
        instead=((BaseType.BYTES, "BYTES_SPLIT"),),
    ),
)
