"""Functions over URLs, read by the expression of RFC 3986, Appendix B; parameters as HTML forms write them."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Written, takes
from strandline.jobs.model import types as t

_TEXT = takes(t.VARCHAR, t.VARCHAR)
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
