"""Functions over VARCHAR that holds JSON. A text that is no JSON (RFC 8259, all of it) gives NULL, never an error.

Numbers are spelled as in the text, members keep their order, blanks between tokens go: neither engine does so by
itself. So the tokens that are no strings are first made strings with a mark, and lose it in the result:

    {"a": 1.50, "b": [null]}   ->   {"a": "␁1.50", "b": ["␁null"]}   ->   b: [null]

The marks are characters that Unicode keeps out of texts. Spark, which reads items and members as texts, gets strings
with a mark too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from strandline.jobs.functions.scalars.contract import (
    Scalar,
    Types,
    Written,
    count,
    quoted,
    takes,
    takes_any_number,
    unquoted,
)
from strandline.jobs.functions.scalars.maps import LAST_WINS
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported, TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType

# Paths into JSON, as ksqlDB reads them: `$`, then steps `.name`, `[place]`, `["any name"]`.
#
# A step is the name of a member, or the place of an item, from 0: the JSON decides. So `$.0` and `$[0]` are the same.
# A text that is no path leads nowhere: places before the first, wildcards and `..` are none.

_STEP = re.compile(r'\.([\w:@]+)|\[(\w+)\]|\["((?:[^"\\]|\\["\\])*)"\]')
# In the text of a row a step in quotes is none: the engines cannot take it apart.
_ROW_PATH = r"^\$(\.[\p{L}\p{N}_:@]+|\[[\p{L}\p{N}_]+\])*\z"
# Signs that no path of Spark's can have in a name.
_UNSPELLED = frozenset("'?")


def steps_of(path: str) -> list[str] | None:
    """The names and places of a path; None: it is no path."""
    if not path.startswith("$"):
        return None
    steps, position = [], 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        name, place, in_quotes = match.groups()
        steps.append(re.sub(r"\\(.)", r"\1", in_quotes) if in_quotes is not None else name or place)
        position = match.end()
    return steps


def check_path(literals: Sequence[str | None]) -> None:
    """Check a path that is a constant. Raises NotSupported: a name in it cannot be asked for on both engines."""
    for step in steps_of(literals[1]) or () if literals[1] is not None else ():
        if not step or _UNSPELLED & set(step):
            raise NotSupported(f"the name '{step}' in a path of JSON is not supported", hint="JSON_RECORDS(…)['name']")


def pointer_of(steps: Sequence[str]) -> str:
    """The steps as a JSON pointer (RFC 6901), whose steps are names or places too."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def row_pointer(dialect: str, path: str) -> str:
    """The pointer of a path that is no constant; NULL where it is no path of plain steps."""
    expression = quoted(_ROW_PATH, dialect)
    matches, step, group = {
        "spark": ("regexp_like", quoted(r"[.\[]([^.\[\]]+)\]?", "spark"), "'/$1'"),
        "duckdb": ("regexp_matches", quoted(r"[.\[]([^.\[\]]+)\]?", "duckdb"), "'/\\1', 'g'"),
    }[dialect]
    return f"CASE WHEN {matches}({path}, {expression}) THEN regexp_replace(substring({path}, 2), {step}, {group}) END"


_TEXT_MAP = t.map_of(t.VARCHAR, t.VARCHAR)
_PLAIN, _STRING, _END = "\ufdd1", "\ufdd0", "\ufdd2"
"""The marks before a token that is no string, before a string, and, for a moment, after one."""
# A string, its content, and any other token. Java would read the loops by recursion if they could give back.
_TOKEN = {
    "spark": r'("([^"\\]*+(?:\\.[^"\\]*+)*+)")|([0-9A-Za-z.+-]++)',
    "duckdb": r'("([^"\\]*(?:\\.[^"\\]*)*)")|([0-9A-Za-z.+-]+)',
}
# DuckDB takes these for JSON: a comma before the end, numbers that are none.
_LENIENT = r",[ \t\n\r]*[\]}]|(?i:nan|inf)"
_BEGINS = {"OBJECT": r"^[ \t\n\r]*\{", "ARRAY": r"^[ \t\n\r]*\["}
# A number that is no small whole one, in JSON that DuckDB has written.
_RESPELLED = r"[0-9][.eE]|[0-9]{16}|(?i:nan|inf)"
# From here on an argument is written once.
_SHORT = 40


def _replaced(dialect: str, text: str, expression: str, made: str) -> str:
    if dialect == "spark":
        return f"regexp_replace({text}, {quoted(expression, dialect)}, {quoted(made.replace(chr(92), '$'), dialect)})"
    return f"regexp_replace({text}, {quoted(expression, dialect)}, {quoted(made, dialect)}, 'g')"


def _matches(dialect: str, text: str, expression: str) -> str:
    function = {"spark": "regexp_like", "duckdb": "regexp_matches"}[dialect]
    return f"{function}({text}, {quoted(expression, dialect)})"


def _marked(dialect: str, text: str) -> str:
    """The JSON with a string in place of every other token."""
    both = _replaced(dialect, text, _TOKEN[dialect], rf"\1{_STRING}\3{_END}")
    marked = f"replace(replace(replace({both}, '{_STRING}{_END}', ''), '{_STRING}', '\"{_PLAIN}'), '{_END}', '\"')"
    return _without_minus(marked)


def _all_marked(text: str) -> str:
    """For Spark: the same, with a mark before strings too, names of members among them."""
    both = _replaced("spark", text, _TOKEN["spark"], rf'"{_STRING}\2{_END}\3"')
    return _without_minus(f"replace(replace({both}, '{_END}\"', '\"'), '{_STRING}{_END}', '{_PLAIN}')")


def _without_minus(marked: str) -> str:
    """-0 is the whole number 0."""
    return f"replace({marked}, '{_PLAIN}-0\"', '{_PLAIN}0\"')"


def _unmarked(dialect: str, text: str) -> str:
    """A value, or JSON, without the marks."""
    inside = _replaced(dialect, text, f'"{_PLAIN}([^"]*)"', r"\1")
    return f"replace({inside}, '{_PLAIN}', '')"


def _is_json(dialect: str, text: str) -> str:
    without_strings = _replaced(dialect, text, _TOKEN[dialect].partition("|")[0], '""')
    if dialect == "spark":
        # What follows the first value shows as another item. Spark would take single quotes.
        alone = f"get_json_object(concat('[', {text}, ',\"{_END}\"]'), '$[1]') = '{_END}'"
        return f"coalesce({alone} AND (NOT contains({text}, '\\'') OR NOT contains({without_strings}, '\\'')), false)"
    strict = f"NOT {_matches(dialect, text, _LENIENT)} OR NOT {_matches(dialect, without_strings, _LENIENT)}"
    return f"coalesce(json_valid({text}) AND ({strict}), false)"


def _where(dialect: str, text: str, kind: str | None, made: Callable[[str], str]) -> str:
    """What is made of the text where it is JSON, of that kind if there is one; else it is made of NULL, or is NULL."""
    is_kind = f" AND {_matches(dialect, text, _BEGINS[kind])}" if kind else ""
    condition = f"{_is_json(dialect, text)}{is_kind}"
    if dialect == "spark":
        return f"CASE WHEN {condition} THEN {made(text)} END"
    # DuckDB asks its functions about a constant whatever CASE says, and they fail on what is no JSON.
    return f"list_transform([CASE WHEN {condition} THEN {text} END], lambda __s: {made('__s')})[1]"


def _once(dialect: str, write: Callable[[Sequence[str]], str]) -> Written:
    """A template that writes its first argument, when that is long, in one place alone."""

    def written(arguments: Sequence[str]) -> str:
        first, *rest = arguments
        if len(first) <= _SHORT:
            return write(arguments)
        made = write(["__j", *rest])
        if dialect == "spark":
            return f"transform(array({first}), __j -> {made})[0]"
        return f"list_transform([{first}], lambda __j: {made})[1]"

    return written


def _extracted_spark(arguments: Sequence[str], string: str = "{}") -> str:
    """What a path leads to; `string`: what becomes of a string's content."""
    text, path = arguments
    known = unquoted(path, "spark")
    if known is None:
        # A step of digits is taken for a place, or all of them for names.
        names = f"regexp_replace({path}, '[.\\\\[]([^.\\\\[\\\\]]+)\\\\]?', '[\\'{_STRING}$1\\']')"
        places = f"regexp_replace({names}, '\\\\[\\'{_STRING}([0-9]+)\\'\\\\]', '[$1]')"
        paths = [f"CASE WHEN {row_pointer('spark', path)} IS NOT NULL THEN {each} END" for each in (places, names)]
    else:
        steps = steps_of(known)
        if steps is None:
            return "CAST(NULL AS STRING)"
        ways = [((f"[{step}]",) if step.isdecimal() else ()) + (f"['{_STRING}{step}']",) for step in steps]
        paths = [quoted("$" + "".join(way), "spark") for way in product(*ways)]
    found = ", ".join(f"get_json_object({_all_marked(text)}, {each})" for each in paths)
    value = f"transform(array(coalesce({found})), __x -> {_read('__x', string=string, nested='__x')})[0]"
    return _where("spark", text, None, lambda _: value)


def _extracted_duckdb(arguments: Sequence[str], string: str = "json_extract_string({}, {})") -> str:
    text, path = arguments
    known = unquoted(path, "duckdb")
    if known is None:
        pointer = row_pointer("duckdb", path)
    else:
        steps = steps_of(known)
        if steps is None:
            return "CAST(NULL AS VARCHAR)"
        pointer = quoted(pointer_of(steps), "duckdb")

    def value(text: str) -> str:
        marked = _unmarked("duckdb", f"json_extract_string({_marked('duckdb', text)}, {pointer})")
        found = f"json_extract_string({text}, {pointer})"
        # Marks cost twenty times what the rest does: only where there is a number that DuckDB would spell otherwise.
        return (
            f"CASE json_type({text}, {pointer}) WHEN 'VARCHAR' THEN {string.format(text, pointer)}"
            f" WHEN 'NULL' THEN 'null'"
            f" ELSE CASE WHEN {_matches('duckdb', found, _RESPELLED)} THEN {marked} ELSE {found} END END"
        )

    return _where("duckdb", text, None, value)


_CONTENT = "substring({}, 2)"
_QUOTED = "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)"
# What JSON may be cut into: first a character that UTF-16 writes as two, which Spark writes in two escapes.
_ESCAPES = r"\\uD[89AB][0-9A-F]{2}\\uD[C-F][0-9A-F]{2}|\\.|[^\\]+"


def _read(read: str, *, string: str, nested: str) -> str:
    """For Spark: a text with marks that an item or member was read as; `string`: what becomes of a string's content.

    Args:
        nested: the text again where it is an array or object, as JSON without blanks.
    """
    content = _CONTENT.format(read)
    plain = f"replace({_unmarked('spark', nested)}, '{_STRING}', '')"
    parts = f"regexp_extract_all({plain}, {quoted(_ESCAPES, 'spark')}, 0)"
    decoded = "decode(unhex(replace(__p, '\\\\u', '')), 'UTF-16BE')"
    each = f"CASE WHEN length(__p) = 12 AND left(__p, 3) = '\\\\uD' THEN {decoded} ELSE __p END"
    joined = f"array_join(transform({parts}, __p -> {each}), '')"
    paired = f"CASE WHEN contains({plain}, '\\\\uD') THEN {joined} ELSE {plain} END"
    return (
        f"CASE left({read}, 1) WHEN '{_STRING}' THEN {string.format(content)} WHEN '{_PLAIN}' THEN {content}"
        f" ELSE {paired} END"
    )


def _as_json(read: str) -> str:
    """For Spark: the JSON of an item or member, read as a text with marks."""
    return _read(read, string=_QUOTED, nested=f"get_json_object({read}, '$')")


def _as_value(read: str) -> str:
    """The same, but a string is its content."""
    return _read(read, string="{}", nested=f"get_json_object({read}, '$')")


def _items(dialect: str, text: str) -> str:
    """The items of an array as JSON; the text must be one."""
    if dialect == "spark":
        return f"transform(from_json({_all_marked(text)}, 'array<string>'), __x -> {_as_json('__x')})"
    item = _unmarked(dialect, "CAST(__x AS VARCHAR)")
    return f"list_transform(json_extract({_marked(dialect, text)}, '$[*]'), lambda __x: {item})"


def _members(dialect: str, text: str, *, as_json: bool) -> str:
    """The members of an object as pairs of name and value; the text must be one."""
    if dialect == "spark":
        value = (_as_json if as_json else _as_value)("__x.value")
        read = f"map_entries(from_json({_all_marked(text)}, 'map<string, string>'))"
        return f"transform({read}, __x -> named_struct('k', substring(__x.key, 2), 'v', {value}))"
    marked = _marked(dialect, text)
    value = _unmarked(dialect, "CAST(__x[2] AS VARCHAR)" if as_json else "json_extract_string(__x[2], '')")
    pairs = f"list_zip(json_keys({marked}), json_extract({marked}, '$.*'))"
    return f'list_transform({pairs}, lambda __x: struct_pack("k" := __x[1], "v" := {value}))'


def _all_items(dialect: str) -> Written:
    return lambda arguments: _where(dialect, arguments[0], "ARRAY", lambda text: _items(dialect, text))


def _records(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        def made(text: str) -> str:
            members = LAST_WINS[dialect].format(_members(dialect, text, as_json=False), "k")
            return f"CASE WHEN {text} IS NOT NULL THEN {members} END"

        return _where(dialect, arguments[0], "OBJECT", made)

    return write


def _distinct(dialect: str, array: str) -> str:
    if dialect == "spark":
        return f"array_distinct({array})"
    return f"list_filter({array}, lambda __y, __i: list_position({array}, __y) = __i)"


def _keys(dialect: str) -> Written:
    function = {"spark": "json_object_keys", "duckdb": "json_keys"}[dialect]

    def write(arguments: Sequence[str]) -> str:
        return _where(dialect, arguments[0], "OBJECT", lambda text: _distinct(dialect, f"{function}({text})"))

    return write


def _length(dialect: str) -> Written:
    length = {"spark": "json_array_length({})", "duckdb": "CAST(json_array_length({}) AS INTEGER)"}[dialect]
    return lambda arguments: _where(dialect, arguments[0], "ARRAY", length.format)


def _contains(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    if types[0].base not in (BaseType.VARCHAR, BaseType.NULL) or types[1].is_nested:
        raise TypeMismatch(f"{name} takes a VARCHAR with an array of JSON, and a plain value")
    return (t.VARCHAR, types[1]), t.BOOLEAN


def _found_spark(arguments: Sequence[str]) -> str:
    text, wanted = arguments
    as_text = f"CAST({wanted} AS STRING)"
    string = f"substring(to_json(array({as_text})), 2, length(to_json(array({as_text}))) - 2)"
    same = f"regexp_like(__x, '[.eE]') AND try_cast(__x AS DOUBLE) = try_cast({as_text} AS DOUBLE)"
    equal = (
        f"CASE WHEN {wanted} IS NULL THEN __x = 'null' WHEN typeof({wanted}) = 'double' THEN {same}"
        f" WHEN typeof({wanted}) IN ('int', 'bigint', 'boolean') OR typeof({wanted}) LIKE 'decimal%'"
        f" THEN __x = {as_text}"
        f" ELSE __x = {string} END"
    )
    found = _where("spark", text, "ARRAY", lambda json: f"exists({_items('spark', json)}, __x -> {equal})")
    return f"coalesce({found}, false)"


def _found_duckdb(arguments: Sequence[str]) -> str:
    text, wanted = arguments
    as_text = f"CAST({wanted} AS VARCHAR)"
    same = f"regexp_matches(__x, '[.eE]') AND TRY_CAST(__x AS DOUBLE) = TRY_CAST({as_text} AS DOUBLE)"
    equal = (
        f"CASE WHEN {wanted} IS NULL THEN __x = 'null' WHEN typeof({wanted}) = 'DOUBLE' THEN {same}"
        f" WHEN typeof({wanted}) IN ('INTEGER', 'BIGINT', 'BOOLEAN') OR typeof({wanted}) LIKE 'DECIMAL%'"
        f" THEN __x = {as_text} ELSE __x = CAST(to_json({as_text}) AS VARCHAR) END"
    )
    found = _where(
        "duckdb", text, "ARRAY", lambda json: f"len(list_filter({_items('duckdb', json)}, lambda __x: {equal})) > 0"
    )
    return f"coalesce({found}, false)"


_WORDS = {
    "spark": {
        "join": "array_join({}, ',')",
        "each": "transform({}, {} -> {})",
        "all": "concat({})",
        "one": "transform(array({}), {} -> {})[0]",
        "first": "{}[0]",
        "last": "element_at(filter(__m, __y -> __y.k = __n), -1).v",
        "name": _QUOTED.format("__n"),
    },
    "duckdb": {
        "join": "array_to_string({}, ',')",
        "each": "list_transform({}, lambda {}: {})",
        "all": "list_concat({})",
        "one": "list_transform([{}], lambda {}: {})[1]",
        "first": "{}[1]",
        "last": "list_filter(__m, lambda __y: __y.k = __n)[-1].v",
        "name": "CAST(to_json(__n) AS VARCHAR)",
    },
}


def _joined(dialect: str) -> Written:
    """Objects: the members of all, where the last ones win. Else the items of all: what is no array is one item."""

    def write(texts: Sequence[str]) -> str:
        valid = " AND ".join(_is_json(dialect, text) for text in texts)
        objects = " AND ".join(_matches(dialect, text, _BEGINS["OBJECT"]) for text in texts)
        made = f"CASE WHEN {objects} THEN {_joined_objects(dialect, texts)} ELSE {_joined_arrays(dialect, texts)} END"
        return f"CASE WHEN {valid} THEN {made} END"

    return write


def _joined_objects(dialect: str, texts: Sequence[str]) -> str:
    words = _WORDS[dialect]
    lists = [_where(dialect, each, "OBJECT", lambda text: _members(dialect, text, as_json=True)) for each in texts]
    names = _distinct(dialect, words["each"].format("__m", "__x", "__x.k"))
    members = words["each"].format(names, "__n", f"{words['name']} || ':' || {words['last']}")
    joined = words["one"].format(words["all"].format(", ".join(lists)), "__m", words["join"].format(members))
    return f"'{{' || {joined} || '}}'"


def _joined_arrays(dialect: str, texts: Sequence[str]) -> str:
    words = _WORDS[dialect]

    def items(text: str) -> str:
        is_array = _matches(dialect, text, _BEGINS["ARRAY"]) if len(texts) > 1 else "FALSE"
        return _items(dialect, f"CASE WHEN {is_array} THEN {text} ELSE concat('[', {text}, ']') END")

    lists = [_where(dialect, each, None, items) for each in texts]
    if len(texts) == 1:
        return words["first"].format(lists[0])
    return f"'[' || {words['join'].format(words['all'].format(', '.join(lists)))} || ']'"


def _both(name: str, result: SqlType, write: Callable[[str], Written]) -> Scalar:
    return Scalar(
        name,
        takes(result, t.VARCHAR),
        _once("spark", write("spark")),
        _once("duckdb", write("duckdb")),
    )


JSON = (
    # Strings without their quotes, anything else as JSON.
    Scalar(
        "EXTRACTJSONFIELD",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR),
        _once("spark", _extracted_spark),
        _once("duckdb", _extracted_duckdb),
        aliases=("JSON_EXTRACT",),
        check=check_path,
    ),
    # All of it as JSON.
    Scalar(
        "JSON_AT",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR),
        _once("spark", partial(_extracted_spark, string=_QUOTED)),
        _once("duckdb", partial(_extracted_duckdb, string="CAST(json_extract({}, {}) AS VARCHAR)")),
        check=check_path,
        hidden=True,
    ),
    _both("IS_JSON_STRING", t.BOOLEAN, lambda dialect: lambda arguments: _is_json(dialect, arguments[0])),
    _both("JSON_ARRAY_LENGTH", t.INT, _length),
    Scalar("JSON_ARRAY_CONTAINS", _contains, _once("spark", _found_spark), _once("duckdb", _found_duckdb)),
    _both("JSON_ITEMS", t.array(t.VARCHAR), _all_items),
    _both("JSON_KEYS", t.array(t.VARCHAR), _keys),
    _both("JSON_RECORDS", _TEXT_MAP, _records),
    Scalar("JSON_CONCAT", takes_any_number(t.VARCHAR, t.VARCHAR, 1), _joined("spark"), _joined("duckdb")),
)
