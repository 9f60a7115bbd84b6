"""The rules by which an answer is not asked for, or differs as our documentation says: kinds, never single queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp, parse_one


@dataclass(frozen=True)
class Difference:
    """A documented difference between the dialects.

    An answer is excused when DuckDB gives it with these settings, or to the query said in other words, and not without.

    Attributes:
        settings: of DuckDB.
        said: the tree of a query in the words that mean to DuckDB what the query means to us.
    """

    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    said: Callable[[exp.Expression], exp.Expression] | None = None

    def saying(self) -> Callable[[str], str] | None:
        """`said`, from text to text; None where nothing is said otherwise."""
        said = self.said
        if said is None:
            return None
        return lambda text: parse_one(text, read="duckdb").transform(said).sql("duckdb")


def _all_matches(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.RegexpReplace) and not node.args.get("modifiers"):
        node.set("modifiers", exp.Literal.string("g"))
    return node


_WIDER: Final = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "UTINYINT", "USMALLINT"), exp.DType.INT),
    "UINT": exp.DType.BIGINT,
    "FLOAT": exp.DType.DOUBLE,
}
_DIGITS: Final = {"UBIGINT": "DECIMAL(20, 0)", "INT128": "DECIMAL(38, 0)"}


def _wider(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.DataType) and node.this.name in _WIDER:
        return exp.DataType(this=_WIDER[node.this.name])
    if isinstance(node, exp.DataType) and node.this.name in _DIGITS:
        return exp.DataType.build(_DIGITS[node.this.name])
    return node


def _instant(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.DataType) and node.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ):
        return exp.DataType(this=exp.DType.TIMESTAMPTZ)
    return node


def _cut_off(node: exp.Expression) -> exp.Expression:
    whole = ("TINYINT", "SMALLINT", "INT", "BIGINT", "UTINYINT", "USMALLINT", "UINT")
    if isinstance(node, exp.Cast) and node.to.this.name in whole and not isinstance(node.this, exp.Anonymous):
        node.set("this", exp.Anonymous(this="trunc", expressions=[node.this]))
    return node


def _first(node: exp.Expression) -> exp.Expression:
    """FIRST_VALUE and LAST_VALUE (x ORDER BY y): DuckDB's aggregates have other names."""
    name = "first" if isinstance(node, exp.FirstValue) else "last" if isinstance(node, exp.LastValue) else None
    if name is not None and not isinstance(node.parent, exp.Window | exp.IgnoreNulls):
        return exp.Anonymous(this=name, expressions=[node.this])
    return node


def _empty_list(node: exp.Expression) -> exp.Expression:
    inner = node
    while isinstance(inner, exp.Filter | exp.Window):
        inner = inner.this
    if isinstance(inner, exp.ArrayAgg) and not isinstance(node.parent, exp.Coalesce | exp.Filter | exp.Window):
        return exp.Coalesce(this=node.copy(), expressions=[exp.Array(expressions=[])])
    return node


def _empty_map(node: exp.Expression) -> exp.Expression:
    inner = node
    while isinstance(inner, exp.Filter | exp.Window):
        inner = inner.this
    named = isinstance(inner, exp.Anonymous) and inner.name.lower() == "histogram"
    if named and not isinstance(node.parent, exp.Coalesce | exp.Filter | exp.Window):
        return exp.Coalesce(this=node.copy(), expressions=[exp.maybe_parse("MAP {}", dialect="duckdb")])
    return node


def _natural(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Log) and node.args.get("expression") is None:
        return exp.Ln(this=node.this)
    return node


def _texts_in_list(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.In) and all(isinstance(each, exp.Literal) for each in node.expressions):
        node.set("expressions", [exp.Literal.string(each.name) for each in node.expressions])
    return node


def _named_as_in_postgres(node: exp.Expression) -> exp.Expression:
    for each in list(node.expressions) if isinstance(node, exp.Select) else ():
        inner = each
        while isinstance(inner, exp.Cast):
            inner = inner.this
        if inner is not each and isinstance(inner, exp.Column):
            each.replace(exp.alias_(each.copy(), inner.name, quoted=True))
    return node


_ALL_COLUMNS: Final = re.compile(
    r"\bselect\s+(?:distinct\s+)?(?:\w+\.)?\*.*\b(?:using\s*\(|natural\b)", re.IGNORECASE | re.DOTALL
)


def names_joined_twice(sql: str) -> bool:
    """True for `SELECT *` of a join with USING: a view shows the column of each side, as in ksqlDB."""
    return _ALL_COLUMNS.search(sql) is not None


_NULLS: Final = {"default_null_order": "nulls_first_on_asc_last_on_desc"}
_DIVISION: Final = {"integer_division": "true"}

SAID_AS_IT_IS: Final = Difference("", said=lambda node: node)
"""No difference: what saying a query anew changes by itself."""

DIFFERENCES: Final = (
    Difference("NULL is less than any value: first with ASC, last with DESC", _NULLS),
    Difference("INT / INT is an INT", _DIVISION),
    Difference("NULL is less than any value, and INT / INT is an INT", _NULLS | _DIVISION),
    Difference("NULL is less than any value: first with ASC, last with DESC", _NULLS, _first),
    Difference(
        "TINYINT and SMALLINT are INT, FLOAT is DOUBLE, an unsigned type is a wider one with a sign", said=_wider
    ),
    Difference("TIMESTAMP is an instant, in UTC", said=_instant),
    Difference("REGEXP_REPLACE replaces every match", said=_all_matches),
    Difference("a CAST of a fraction to an INT cuts it off", said=_cut_off),
    Difference(
        "a CAST of a fraction to an INT cuts it off, and TINYINT is INT", said=lambda node: _cut_off(_wider(node))
    ),
    Difference("ARRAY_AGG of no rows is an empty ARRAY", said=_empty_list),
    Difference("ARRAY_AGG of no rows is an empty ARRAY", _NULLS, _empty_list),
    Difference("HISTOGRAM of no rows is an empty MAP", said=_empty_map),
    Difference("HISTOGRAM of no rows is an empty MAP", _NULLS, _empty_map),
    Difference("a CAST of a column has its name, also for ORDER BY, as in PostgreSQL", _NULLS, _named_as_in_postgres),
    Difference("LOG(x) is the natural logarithm, as in ksqlDB", said=_natural),
    Difference("IN takes literals as values of what stands before it, as in ksqlDB", said=_texts_in_list),
)


@dataclass(frozen=True)
class Worded:
    """A difference that a query has by its words.

    Those of `AS_DUCKDB` are between PostgreSQL and DuckDB: there our answer must be DuckDB's.
    """

    title: str
    words: re.Pattern[str]


AS_DUCKDB: Final = tuple(
    Worded(title, re.compile(words, re.IGNORECASE | re.DOTALL))
    for title, words in (
        ("UNNEST takes items of one level", r"\bunnest\s*\("),
        ("a FULL JOIN keeps rows whose key is NULL", r"\bfull\s+(?:outer\s+)?join\b"),
        ("GENERATE_SERIES in the SELECT list is an ARRAY", r"\bgenerate_series\s*\("),
        ("a negative position counts from the end", r"\[[\d\s]*:?\s*-|\barray_(?:get|element)"),
        ("the text of an ARRAY is [a, b], of a STRUCT {a: 1}", r"::\s*(?:varchar|text)|\bcast\s*\(|\|\||\bconcat"),
        ("* of a JOIN with USING keeps the order of the columns", r"\bselect\s+\*.*\b(?:using|natural)\b"),
    )
)

BY_WORDS: Final = tuple(
    Worded(title, re.compile(words, re.IGNORECASE | re.DOTALL))
    for title, words in (
        ("ARRAY_JOIN writes null for NULL, as in ksqlDB", r"\barray_join\s*\("),
        ("INSTR of NULL is 0, as in ksqlDB", r"\binstr\s*\(.*\bnull\b"),
        ("~ looks for a regular expression anywhere in the text, as in PostgreSQL", r"'\s*!?~\*?\s*'"),
        ("ELEMENT_AT of a MAP is the value, as in Trino and Spark", r"\belement_at\s*\("),
        ("ARRAY_TO_STRING by NULL is NULL, as in PostgreSQL", r"\barray_to_string\s*\(.*,\s*null\s*\)"),
        ("an array || NULL is the array, as in PostgreSQL", r"\]\s*\|\|\s*(?:cast\s*\(\s*)?null\b"),
        ("LIST_CONCAT of NULLs alone is NULL", r"\blist_concat\s*\(\s*list_transform\s*\("),
        ("the text of a STRUCT is ksqlDB's", r"\bstruct_pack\s*\(.*::\s*varchar"),
        ("WEIGHTED_AVG of weights that come to 0 is NULL", r"\bweighted_avg\s*\("),
        ("MAD of a DECIMAL is a DOUBLE", r"\b(?:list_)?mad\s*\(.*decimal"),
        ("hexadecimal is read in pairs of digits", r"\b(?:from_hex|unhex)\s*\("),
        ("a text as BYTES is its UTF-8", r"try_cast\s*\(\s*'[^']*[^\x00-\x7f][^']*'\s+as\s+(?:blob|bytea)"),
        (
            "STRPTIME takes what is not said as of 1970, all digits of a fraction, and a text that fits as it is",
            r"\bstrptime\s*\(.*(?:'%[aAb]'|%j|%[gf]|infinity|'epoch'|\d\s{2})",
        ),
        ("REGEXP_REPLACE: a backslash in the new text is a letter", r"\bregexp_replace\s*\(.*\\[\d&\\]"),
        ("REGEXP_SPLIT_TO_ARRAY keeps empty parts, as in ksqlDB", r"\bregexp_split_to_array\s*\("),
        ("a text that is no TRUE is FALSE, as in ksqlDB", r"::\s*bool|\bas\s+bool"),
        (
            "a DATE is read from an ISO date of the years 1 to 9999, also without month or day",
            r"try_cast\s*\(\s*'(?!\s*\d{4}-\d\d-\d\d\s*')[^']*'\s+as\s+(?:date|timestamp)",
        ),
        (
            "a TIME is read from an ISO time, 00:00 to 23:59:59.999",
            r"try_cast\s*\(\s*'(?!\s*(?:[01]\d|2[0-3]):\d\d(?::\d\d(?:\.\d+)?)?\s*')[^']*'\s+as\s+time\b",
        ),
        (
            "SUBSTRING counts a negative position from the end, takes 0 for 1, a negative length for 0",
            r"\bsubstr(?:ing)?\s*\([^()]*,\s*(?:int\s*)?'?(?:-\s*\d|0\s*[,)])",
        ),
        ("GENERATE_SERIES in the SELECT list is an ARRAY", r"\bselect\s+generate_series\s*\("),
        ("REGEXP_EXTRACT and REGEXP_EXTRACT_ALL are ksqlDB's: the pattern first", r"\bregexp_extract(?:_all)?\s*\("),
        ("ROUND takes halves up, as in ksqlDB", r"\bround\s*\("),
        ("REGR_… is NULL where x is the same in all rows", r"\bregr_(?:slope|intercept|r2)\s*\("),
        ("a variance is NaN while there is a value beyond 1e150", r"\b(?:regr|var|stddev|covar|corr)\w*\s*\(.*e\d{3}"),
        ("a correlation is NULL where one side is the same in all rows, as in PostgreSQL", r"\bcorr\s*\("),
        (
            "OVERLAY with a negative length takes the text from its beginning, as in PostgreSQL",
            r"\boverlay\b.*\bfor\s*-",
        ),
        (
            "LPAD and RPAD give NULL for no padding or a negative length, as in ksqlDB",
            r"\b[lr]pad\s*\([^()]*,\s*(?:''\s*\)|-)",
        ),
        ("FLOAT is DOUBLE, and LOG(x) the natural logarithm, as in ksqlDB", r"\blog\s*\(ret\s*\+\s*1\)"),
        ("LOG(1, x) is NaN, as in ksqlDB", r"\blog\s*\(\s*1\b"),
        ("AT TIME ZONE takes a column for an instant", r"\b[a-z_]\w*\s+at\s+time\s+zone\b"),
        ("EXTRACT(EPOCH FROM at) is whole seconds", r"\bextract\s*\(\s*epoch\b"),
        ("ARRAY_DISTINCT keeps NULL, as in ksqlDB", r"\barray_distinct\s*\("),
        (
            "STRING_AGG without ORDER BY takes rows in no order, as all of SQL",
            r"\bstring_agg\s*\((?![^()]*\border\b).*\bunion\b",
        ),
        (
            "LIMIT of a subquery without ORDER BY takes any row",
            r"\(\s*select\b(?:(?!\border\s+by\b)[^()])*\blimit\s+1\s*\)",
        ),
        ("ORDER BY of a subquery orders nothing outside of it", r"\border\s+by\b[^()]*\).*\blimit\b"),
        ("QUANTILE_CONT of a DECIMAL is a DOUBLE", r"\bquantile_cont\s*\(.*::\s*decimal"),
        ("a URL parameter with a broken % is NULL", r"\burl_decode\s*\(\s*'[^']*%(?![0-9a-fA-F]{2})"),
        ("REGEXP_MATCHES is a condition, as in DuckDB", r"\bregexp_matches\s*\("),
        ("what is approximate elsewhere is exact", r"\bapprox_(?:count_distinct|distinct|quantile|percentile)\s*\("),
        (
            "sums and averages of DOUBLEs agree within 1e-9 of what is added up",
            r"\b(?:favg|fsum|kahan_sum|sumkahan)\s*\(",
        ),
        (
            "a character is a code point",
            r"\breverse\s*\(.*[\u0300-\u036f\u20d0-\u20ff\ufe00-\ufe0f\u200d\U0001f3fb-\U0001f3ff]",
        ),
        ("0.0 and -0.0 are one value", r"-\s*0(?:\.0*)?\s*::"),
        ("a CAST of a fraction to an INT cuts it off", r"::\s*(?:small|big)?int\w*\s*\["),
    )
)
"""Documented differences of a function that DuckDB cannot be asked about in other words."""

_NOT_ASKED: Final = (
    (
        re.compile(
            r"\s*(?:EXPLAIN|PRAGMA|SHOW|DESCRIBE|DESC|SUMMARIZE|CALL|EXECUTE|COPY|SET|PIVOT|UNPIVOT|ANALYZE|INSERT|UPDATE"
            r"|DELETE|CREATE|ALTER|DROP|CHECKPOINT|EXPORT|IMPORT|VACUUM|MERGE|ATTACH|DETACH|USE|RESET|LOAD|PREPARE|TABLE"
            r"|DECLARE|FETCH|CLOSE|BEGIN|COMMIT|ROLLBACK|FLUSH)\b",
            re.IGNORECASE,
        ),
        "no SELECT",
    ),
    (
        re.compile(r"\bas\s*(?:not\s+)?(?:materialized\s*)?\(\s*(?:insert|update|delete|merge)\b", re.IGNORECASE),
        "no SELECT",
    ),
    (
        re.compile(
            r"\b(?:random|rand|setseed|gen_random_uuid|uuid|uuidv\d|now|today|current_\w+|localtime\w*|get_current_\w+"
            r"|transaction_timestamp|proctime|nextval|currval|txid_current|pg_sleep)\s*\("
            r"|\bcurrent_(?:date|time|timestamp|user|schema|role|database)\b|\b(?:using|table)sample\b|\bsample\s+\d",
            re.IGNORECASE,
        ),
        "is not the same twice",
    ),
    (
        re.compile(
            r"\b(?:pg_\w+|duckdb_\w+|information_schema|rw_catalog|sqlite_master|pragma_\w+|read_(?:csv|parquet|json)\w*"
            r"|parquet_\w+|glob|current_setting|getvariable|getenv|sql_auto_complete|stats|typeof|pg_typeof|alias|version"
            r"|vector_type|query_table|query|has_\w+_privilege|obj_description|col_description|format_type|regclass"
            r"|_rw_timestamp|_row_id|rowid|checkpoint|json_execute_serialized_sql|test_all_types|test_vector_types"
            r"|repeat_row|enum_\w+|openivm_\w+|export_state)\b",
            re.IGNORECASE,
        ),
        "asks the engine about itself, its catalog, types or files",
    ),
)


def not_asked(sql: str) -> str:
    """Why a query is not asked; empty: it is."""
    text = re.sub(r"'(?:[^']|'')*'", "''", re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL))
    if _changes_rows(text):
        return "no SELECT"
    return next((reason for pattern, reason in _NOT_ASKED if _found(pattern, text)), "")


def _changes_rows(text: str) -> bool:
    """True for WITH … INSERT and its like."""
    outside = text
    while (inner := re.sub(r"\([^()]*\)", " ", outside)) != outside:
        outside = inner
    return re.match(r"\s*with\b.*\b(?:insert|update|delete|merge)\b", outside, re.IGNORECASE | re.DOTALL) is not None


def _found(pattern: re.Pattern[str], text: str) -> bool:
    begins = pattern.pattern.startswith(r"\s*(?:EXPLAIN")
    return (pattern.match(text) if begins else pattern.search(text)) is not None
