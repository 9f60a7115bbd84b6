"""Functions that are elaborated into others: short forms, older names, units of time, and steps into JSON.

DATEADD(DAYS, 5, day)             ADD_DAYS(day, 5)
TIMESTAMPSUB(HOURS, i, at)        ADD_MILLISECONDS(at, -i * 3600000)
STRINGTODATE(s, 'yyyyMMdd')       UNIX_DATE(PARSE_DATE(s, 'yyyyMMdd'))
ARRAY_JOIN(tags)                  JOIN_TEXTS(tags)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.scalars.contract import common
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.arithmetic import arithmetic, literal, negated
from strandline.jobs.query.expressions.casts import converted, field, json_of, widened
from strandline.jobs.query.expressions.durations import DIFFERENCES, unit_of
from strandline.jobs.query.expressions.other_dialects import IN_OTHER_FORMS, OTHER_DIALECTS
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.expressions.times import PLAIN_TIMES, POSTGRES_TIMES, extracted, lengths_between, truncated
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.time_clauses import interval_of
from strandline.jobs.sql.trees import call, identifier, is_not_null

_DAY = 86_400_000
_UNITS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": _DAY, "WEEK": 7 * _DAY}
"""Units of time in milliseconds, by name (an S may follow)."""


def _unit_of(node: exp.Expr) -> int | None:
    """The length of the unit that a bare word names; None when it names none."""
    if not isinstance(node, exp.Column) or node.table:
        return None
    name = node.name.upper()
    return _UNITS.get(name) or _UNITS.get(name.removesuffix("S"))


def _shifted(sql_type: SqlType, sign: int) -> Callable[[exp.Anonymous, Infer], Typed]:
    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        lengths = lengths_between(node, typed) if node.name == "DATESUB" else None
        if lengths is not None:
            return lengths
        if len(node.expressions) != 3:
            raise TypeMismatch(f"{node.name} takes 3 arguments: {node.name}(DAYS, number, value)")
        unit, number, value = node.expressions
        length = _unit_of(unit)
        other = _by_interval(node, unit, number, value, sign, typed) if sql_type.base is not BaseType.TIME else None
        if other is not None:
            return other
        if length is None:
            raise TypeMismatch(f"argument 1 of {node.name} is a unit of time", hint="DAYS, HOURS, … MILLISECONDS")
        amount, moment = typed(number), typed(value)
        for position, given, wanted in (
            (2, amount, (BaseType.INT, BaseType.BIGINT, BaseType.NULL)),
            (3, moment, (sql_type.base, BaseType.NULL)),
        ):
            if given.type.base not in wanted:
                raise TypeMismatch(f"argument {position} of {node.name} must be {wanted[0]}, not {given.type}")
        return _sum(sql_type, moment, widened(amount, t.BIGINT), sign * length)

    return rewrite


def _by_interval(
    node: exp.Anonymous, unit: exp.Expr, number: exp.Expr, value: exp.Expr, sign: int, typed: Infer
) -> Typed | None:
    """DATEADD of a TIMESTAMP, TIMESTAMPADD of a DATE, and both in months, as `value + number * INTERVAL`: others go by
    the type of the value. None: it is as ksqlDB has it."""
    name = unit_of(unit)
    months = name in ("MONTH", "QUARTER", "YEAR")
    base = typed(value).type.base
    wanted = BaseType.DATE if node.name.startswith("DATE") else BaseType.TIMESTAMP
    if name is None or base not in (BaseType.DATE, BaseType.TIMESTAMP) or (base is wanted and not months):
        return None
    length = interval_of("1", name)
    assert length is not None  # a unit of time is one of an INTERVAL
    times = exp.Mul(this=exp.Paren(this=number.copy()), expression=length)
    operator = exp.Add if sign > 0 else exp.Sub
    return typed(operator(this=exp.Paren(this=value.copy()), expression=exp.Paren(this=times)))


def _sum(sql_type: SqlType, moment: Typed, amount: Typed, length: int) -> Typed:
    product = arithmetic(exp.Mul, Typed(exp.Paren(this=amount.expression), t.BIGINT), _whole(length))
    if sql_type.base is BaseType.DATE:
        # A fraction of a day is cut off, as in ksqlDB.
        days = arithmetic(exp.Div, Typed(exp.Paren(this=product.expression), t.BIGINT), _whole(_DAY))
        product = converted(days, t.INT)
    name = {BaseType.DATE: "ADD_DAYS", BaseType.TIME: "ADD_TO_TIME", BaseType.TIMESTAMP: "ADD_MILLISECONDS"}[
        sql_type.base
    ]
    return Typed(call(name, widened(moment, sql_type).expression, product.expression), sql_type)


def _whole(number: int) -> Typed:
    size = literal(exp.Literal(this=str(abs(number)), is_string=False))
    return negated(size) if number < 0 else size


def _array_join(node: exp.Anonymous, typed: Infer) -> Typed:
    if not 1 <= len(node.expressions) <= 2:
        raise TypeMismatch("ARRAY_JOIN takes 1 to 2 arguments")
    items = typed(node.expressions[0])
    if items.type.base is not BaseType.ARRAY or items.type.args[0].is_nested:
        raise TypeMismatch(f"ARRAY_JOIN takes an ARRAY of plain values, not {items.type}")
    texts = [converted(items, t.array(t.VARCHAR)), *(typed(each) for each in node.expressions[1:])]
    if texts[1:] and texts[1].type.base not in (BaseType.VARCHAR, BaseType.NULL):
        raise TypeMismatch(f"argument 2 of ARRAY_JOIN must be VARCHAR, not {texts[1].type}")
    return Typed(
        call(
            "JOIN_TEXTS",
            *(
                widened(each, sql_type).expression
                for each, sql_type in zip(texts, (t.array(t.VARCHAR), t.VARCHAR), strict=False)
            ),
        ),
        t.VARCHAR,
    )


def _items(node: exp.Anonymous, typed: Infer) -> Typed:
    """LIST_VALUE(a, b), the long form of ARRAY[a, b]."""
    return typed(exp.Array(expressions=[each.copy() for each in node.expressions]))


def _to_json(node: exp.Anonymous, typed: Infer) -> Typed:
    if len(node.expressions) != 1:
        raise TypeMismatch(f"TO_JSON_STRING takes 1 argument, not {len(node.expressions)}")
    return json_of(typed(node.expressions[0]), converted)


def _older(
    outer: str | None, name: str, inner: str | None = None, *, least: int = 2
) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite to outer(name(inner(first argument), the others))."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        if len(node.expressions) < least:
            raise TypeMismatch(f"{node.name} takes {least} arguments or more, not {len(node.expressions)}")
        first, *rest = node.expressions
        made = call(name, call(inner, first) if inner else first, *rest)
        return typed(call(outer, made) if outer else made)

    return rewrite


def _field_of(node: exp.Anonymous, typed: Infer) -> Typed:
    """DEREFERENCE(struct, 'field'), the long form of `struct->field`."""
    struct, name = (*node.expressions, None, None)[:2]
    if struct is None or not isinstance(name, exp.Literal) or not name.is_string:
        raise InvalidQuery("DEREFERENCE takes a STRUCT and the name of a field: DEREFERENCE(struct, 'field')")
    value = typed(struct)
    known = dict(value.type.fields)
    found = name.name if name.name in known else name.name.lower()
    if found not in known:
        raise UnknownName.among("field", name.name, known)
    return field(value, found, known[found])


def _among_maps(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """ARRAY_REMOVE and ARRAY_CONTAINS of an array of maps, by the maps' entries in the order of their keys.

        ARRAY_REMOVE(maps, m)    FILTER(maps, __m => ENTRIES(__m, TRUE) IS DISTINCT FROM ENTRIES(m, TRUE))

    None: it is no array of maps.
    """
    if len(node.expressions) != 2:
        return None
    items, wanted = (typed(each) for each in node.expressions)
    if items.type.base is not BaseType.ARRAY or items.type.args[0].base is not BaseType.MAP:
        return None
    sql_type = common(node.name, (items.type.args[0], wanted.type))
    if any(has_map(inner) for inner in sql_type.args):
        raise TypeMismatch(f"{node.name} cannot compare values of type {sql_type}")
    removes = node.name == "ARRAY_REMOVE"
    sides = [call("ENTRIES", each, exp.true()) for each in (identifier("__m"), widened(wanted, sql_type).expression)]
    compared = exp.NullSafeNEQ if removes else exp.NullSafeEQ
    test = exp.Lambda(this=compared(this=sides[0], expression=sides[1]), expressions=[identifier("__m")])
    kept = call("FILTER", widened(items, t.array(sql_type)).expression, test)
    if removes:
        return Typed(kept, t.array(sql_type))
    found = exp.GT(this=call("ARRAY_LENGTH", kept), expression=exp.Literal.number(0))
    return Typed(exp.Paren(this=found), t.BOOLEAN)


def _remainder(node: exp.Anonymous, typed: Infer) -> Typed:
    """MOD(a, b): a % b."""
    if len(node.expressions) != 2:
        raise TypeMismatch(f"MOD takes 2 arguments, not {len(node.expressions)}")
    left, right = (exp.Paren(this=each.copy()) for each in node.expressions)
    return typed(exp.Paren(this=exp.Mod(this=left, expression=right)))


def _nvl2(node: exp.Anonymous, typed: Infer) -> Typed:
    """NVL2(a, b, c): b where a is not NULL, else c."""
    if len(node.expressions) != 3:
        raise TypeMismatch(f"NVL2 takes 3 arguments, not {len(node.expressions)}")
    tested, there, missing = node.expressions
    return typed(call("IF", is_not_null(exp.Paren(this=tested.copy())), there, missing))


def _zero_if_null(node: exp.Anonymous, typed: Infer) -> Typed:
    """ZEROIFNULL(a): COALESCE(a, 0)."""
    if len(node.expressions) != 1:
        raise TypeMismatch(f"ZEROIFNULL takes 1 argument, not {len(node.expressions)}")
    return typed(call("COALESCE", node.expressions[0], exp.Literal.number(0)))


def _decoded(node: exp.Anonymous, typed: Infer) -> Typed:
    """DECODE(a, 1, 'x', 2, 'y', 'z'): 'x' where a is 1, …, else 'z'; here NULL is equal to NULL."""
    other = IN_OTHER_FORMS["DECODE"](node, typed)
    if other is not None:
        return other
    first, *rest = node.expressions or [None]
    if first is None or len(rest) < 2:
        raise TypeMismatch("DECODE takes 3 arguments or more: DECODE(value, search, result, …, default)")
    pairs = list(zip(rest[::2], rest[1::2], strict=False))
    value = exp.Paren(this=first.copy())
    branches = [
        exp.If(
            this=exp.Is(this=value.copy(), expression=exp.Null())
            if isinstance(search, exp.Null)
            else exp.EQ(this=value.copy(), expression=exp.Paren(this=search.copy())),
            true=result.copy(),
        )
        for search, result in pairs
    ]
    return typed(exp.Case(ifs=branches, default=rest[-1].copy() if len(rest) % 2 else None))


def _xor(node: exp.Anonymous, typed: Infer) -> Typed:
    """XOR(a, b): a # b."""
    left, right = (exp.Paren(this=each.copy()) for each in _two(node))
    return typed(exp.Paren(this=exp.BitwiseXor(this=left, expression=right)))


def _split_part(node: exp.Anonymous, typed: Infer) -> Typed:
    """SPLIT_PART(text, divider, n): the n-th part, an empty text where there are fewer."""
    if len(node.expressions) != 3:
        raise TypeMismatch(f"SPLIT_PART takes 3 arguments, not {len(node.expressions)}")
    text, divider, place = node.expressions
    part = exp.Bracket(this=call("SPLIT", text, divider), expressions=[place.copy()])
    return typed(
        exp.Case(
            ifs=[
                exp.If(
                    this=exp.Or(
                        this=exp.Is(this=text.copy(), expression=exp.Null()),
                        expression=exp.Is(this=divider.copy(), expression=exp.Null()),
                    ),
                    true=exp.Null(),
                )
            ],
            default=call("COALESCE", part, exp.Literal.string("")),
        )
    )


def _first_dimension(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """ARRAY_LENGTH(array, 1), as PostgreSQL has it; None: it names no dimension."""
    if len(node.expressions) != 2 or not isinstance(node.expressions[1], exp.Literal):
        return None
    if node.expressions[1].this != "1":
        raise TypeMismatch("arrays have one dimension: ARRAY_LENGTH(array, 1)")
    return typed(call("NULLIF", call("ARRAY_LENGTH", node.expressions[0]), exp.Literal.number(0)))


# PostgreSQL's steps into JSON: of a text that holds it, and of a MAP, STRUCT or ARRAY, which its clients see as JSON.
#
# a -> 'b'          JSON_AT(a, '$["b"]'): JSON as text; of a MAP a['b'], of a STRUCT a->b, of an ARRAY (a -> 0) a[1]
# a ->> 'b'         the same as text: strings without quotes, NULL for JSON's null
# a #>> '{b,0}'     a -> 'b' ->> 0

_NULL = "null"
"""JSON's null as a text."""


def _step(node: exp.Anonymous, typed: Infer) -> Typed:
    """`value -> step`, elaborated.

    Raises:
        InvalidQuery: the step is no constant.
        TypeMismatch, UnknownName: the value has no such members.
    """
    step = _literal(node)
    value = typed(node.expressions[0])
    if not step.name:
        return converted(Typed(exp.Null(), t.NULL), t.VARCHAR)
    match value.type.base:
        case BaseType.MAP:
            return typed(exp.Bracket(this=node.expressions[0].copy(), expressions=[exp.Literal.string(step.name)]))
        case BaseType.STRUCT:
            return typed(exp.Dot(this=node.expressions[0].copy(), expression=identifier(step.name)))
        case BaseType.ARRAY if step.is_int:
            place = exp.Literal.number(int(step.name) + 1)
            return typed(exp.Bracket(this=node.expressions[0].copy(), expressions=[place]))
        case BaseType.VARCHAR | BaseType.NULL:
            return typed(call("JSON_AT", node.expressions[0], _path(step)))
    hint = "they are of JSON in a VARCHAR, of a MAP, STRUCT or ARRAY"
    raise TypeMismatch(f"{value.type} has no members: {sql_of(node)}", hint=hint)


def _step_as_text(node: exp.Anonymous, typed: Infer) -> Typed:
    """`value ->> step`, elaborated."""
    step = _literal(node)
    if step.name and typed(node.expressions[0]).type.base in (BaseType.VARCHAR, BaseType.NULL):
        value, path = node.expressions[0], _path(step)
        is_null = exp.EQ(this=call("JSON_AT", value, path), expression=exp.Literal.string(_NULL))
        return typed(exp.Case(ifs=[exp.If(this=is_null, true=exp.Null())], default=call("JSON_EXTRACT", value, path)))
    found = _step(node, typed)
    return json_of(found, converted) if found.type.is_nested else converted(found, t.VARCHAR)


def _along(last: str) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite of a path to its steps, the last one by that function."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        value, path = _two(node)
        while isinstance(path, exp.Cast | exp.Paren):
            path = path.this
        if isinstance(path, exp.Literal) and path.is_string and path.name[:1] == "{" and path.name[-1:] == "}":
            parts: list[exp.Expr] = [exp.Literal.string(each.strip().strip('"')) for each in path.name[1:-1].split(",")]
        elif isinstance(path, exp.Array):
            parts = path.expressions
        else:
            raise InvalidQuery(f"a path of JSON is a constant, '{{a,0}}' or ARRAY['a', '0'], not {sql_of(path)}")
        for part in parts[:-1]:
            value = call("JSON_GET", value, part)
        return typed(call(last, value, *parts[-1:]))

    return rewrite


def _literal(node: exp.Anonymous) -> exp.Literal:
    _, step = _two(node)
    while isinstance(step, exp.Cast | exp.Paren):
        step = step.this
    if isinstance(step, exp.Null):
        return exp.Literal.string("")  # a parameter whose value is not known yet: its type is asked for
    if not isinstance(step, exp.Literal):
        hint = "EXTRACTJSONFIELD(json, path) takes a path that is computed"
        raise InvalidQuery(f"a step into JSON is a constant, not {sql_of(step)}", hint=hint)
    return step


def _two(node: exp.Anonymous) -> tuple[exp.Expr, exp.Expr]:
    if len(node.expressions) != 2:
        raise TypeMismatch(f"{node.name} takes 2 arguments, not {len(node.expressions)}")
    return node.expressions[0], node.expressions[1]


def _path(step: exp.Literal) -> exp.Literal:
    escaped = step.name.replace("\\", "\\\\").replace('"', '\\"')
    return exp.Literal.string(f"$[{step.name}]" if step.name.isdecimal() else f'$["{escaped}"]')


JSON_STEPS: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    "JSON_GET": _step,
    "JSON_GET_TEXT": _step_as_text,
    "JSON_PATH": _along("JSON_GET"),
    "JSON_PATH_TEXT": _along("JSON_GET_TEXT"),
}
"""The rewrite of each step, by the name of the call that the parser makes of it."""


UNLESS_PLAIN: Mapping[str, Callable[[exp.Anonymous, Infer], Typed | None]] = {
    "ARRAY_REMOVE": _among_maps,
    "ARRAY_CONTAINS": _among_maps,
    "ARRAY_LENGTH": _first_dimension,
    **{name: rewrite for name, rewrite in IN_OTHER_FORMS.items() if name != "DECODE"},
}
"""Functions of which some calls are elaborated otherwise, by the types of the arguments; None: not this call."""

REWRITES: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    **{f"DATE{name}": _shifted(t.DATE, sign) for name, sign in (("ADD", 1), ("SUB", -1))},
    **{f"TIME{name}": _shifted(t.TIME, sign) for name, sign in (("ADD", 1), ("SUB", -1))},
    **{f"TIMESTAMP{name}": _shifted(t.TIMESTAMP, sign) for name, sign in (("ADD", 1), ("SUB", -1))},
    "DATETOSTRING": _older(None, "FORMAT_DATE", "FROM_DAYS"),
    "STRINGTODATE": _older("UNIX_DATE", "PARSE_DATE"),
    "TIMESTAMPTOSTRING": _older(None, "FORMAT_TIMESTAMP", "FROM_UNIXTIME"),
    "STRINGTOTIMESTAMP": _older("UNIX_TIMESTAMP", "PARSE_TIMESTAMP"),
    **dict.fromkeys(("LIST_VALUE", "ARRAY_VALUE", "LIST_PACK"), _items),
    "POW": _older(None, "POWER"),
    "BTRIM": _older(None, "TRIM", least=1),
    "ARRAY_JOIN": _array_join,
    "TO_JSON_STRING": _to_json,
    "DEREFERENCE": _field_of,
    "EXTRACT": extracted,
    "DATE_TRUNC": truncated,
    "DATE_PART": extracted,
    "CHAR_LENGTH": _older(None, "LEN", least=1),
    "CHARACTER_LENGTH": _older(None, "LEN", least=1),
    "MOD": _remainder,
    "SPLIT_PART": _split_part,
    "IFF": _older(None, "IF", least=3),
    "NVL": _older(None, "COALESCE"),
    "NVL2": _nvl2,
    "ZEROIFNULL": _zero_if_null,
    "DECODE": _decoded,
    "XOR": _xor,
    **PLAIN_TIMES,
    **DIFFERENCES,
    **JSON_STEPS,
    **POSTGRES_TIMES,
    **OTHER_DIALECTS,
}
"""The rewrite of each function, by name: it takes the call and elaborates it."""

CALLED: frozenset[str] = frozenset(REWRITES) - frozenset(JSON_STEPS) - {"TIMEZONE"}
"""Those that users call by name: the others are what the parser makes of operators."""
