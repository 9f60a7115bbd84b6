"""Expressions that have every scalar function, operator and CAST in them, made of the registries and signatures.

Nothing is listed by hand but the forms of operators that are not between two values, and the cases of
`tests.support.function_cases`, which have the arguments that must be constants. `uncovered` says what is in no call:
a new function is in one by itself, or a test fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from sqlglot import exp

from strandline.jobs.functions.registry import SCALARS
from strandline.jobs.functions.scalars.contract import Scalar
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.query.expressions.infer import OPERATORS, infer
from strandline.jobs.query.expressions.rewrites import REWRITES
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.dialect import NestedQuery, OuterValue, sql_of
from tests.support.function_cases import EXPECTED
from tests.support.function_values import COLUMNS, KINDS, SCOPE, SMALL
from tests.support.parsed import parse_expression

# They make as much as they are asked for: two billion characters are a fault of nobody's.
_GENEROUS: Final = frozenset({"LPAD", "RPAD", "GENERATE_SERIES", "REPEAT"})
_MOST_ARGUMENTS: Final = 3
# A third argument of another type is rare; all triples of types would take minutes to ask for.
_KINDS_OF_THREE: Final = ("i", "b", "d", "s", "bytes", "day", "at", "tags", "ratings")
_UNITS: Final = ("DAYS", "HOURS", "MILLISECONDS")
_CONSTANTS: Final = {t.INT: ("0", "2", "-2", "40"), t.VARCHAR: ("'day'", "'MILES'", "'utf8'", "'hex'", "'DESC'")}
_FORMS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    exp.Neg: ("-{x}",),
    exp.Not: ("NOT {x}",),
    exp.Paren: ("({x})",),
    exp.Is: ("{x} IS NULL", "{x} IS NOT NULL", "{x} IS TRUE", "{x} IS NOT FALSE", "{x} IS UNKNOWN"),
    exp.Between: ("{x} BETWEEN {y} AND {x}", "{x} BETWEEN {y} AND {y}"),
    exp.In: ("{x} IN ({y}, {x})", "{x} NOT IN ({y})", "{x} IN ({y}, NULL)"),
    exp.Like: ("{x} LIKE {y}", "{x} ILIKE {y}", "{x} NOT LIKE {y}", "{x} LIKE '%a_'"),
    exp.Escape: ("{x} LIKE '%!_%' ESCAPE '!'",),
    exp.Case: ("CASE WHEN {x} > {y} THEN {x} ELSE {y} END", "CASE {x} WHEN {y} THEN 1 ELSE 2 END"),
    exp.Bracket: ("{x}[{y}]", "{x}[1]", "{x}[-1]"),
    exp.Dot: ("{x}->name",),
    exp.Array: ("ARRAY[{x}, {y}]", "ARRAY[{x}, NULL]"),
    exp.Cast: (),
    exp.TryCast: (),
    exp.Anonymous: (),
}
_TARGETS: Final = (
    *dict.fromkeys(str(kind) for _, kind in COLUMNS),
    "DECIMAL(5, 2)",
    "DECIMAL(38, 30)",
    "ARRAY<BIGINT>",
)


@lru_cache(maxsize=1)  # thousands of texts, most of which do not fit: a second test asks for the same
def calls(kinds: int, seed: int) -> Mapping[str, Typed]:
    """The expressions, elaborated, by their text.

    Args:
        kinds: at most so many of each operator and of each number of arguments of a function.
        seed: decides which.
    """
    chance = random.Random(seed)
    cases = (text for text in EXPECTED if not any(f"{name}(" in text for name in _GENEROUS))
    found = {text: infer(parse_expression(text), SCOPE) for text in cases}
    groups = ((group, kinds) for group in (*_of_functions(), *_of_rewrites(), *_of_operators()))
    for group, most in (*groups, (list(_casts()), kinds * len(_TARGETS))):
        taken = 0
        for text in chance.sample(group, len(group)):
            if taken == most:
                break
            try:
                found[text] = infer(parse_expression(text), SCOPE)
            except SqlError:
                continue  # an argument that must be a constant, or another value
            taken += 1
    return found


def uncovered(found: Mapping[str, Typed]) -> list[str]:
    """The names of functions, rewrites and operators that are in none of the expressions."""
    walked = [node for text in found for node in parse_expression(text).walk()]
    there = {node.name.upper() for node in walked if isinstance(node, exp.Anonymous)}
    names = {scalar.name for scalar in SCALARS.values()} | set(REWRITES)
    nodes = {*map(type, walked), NestedQuery, OuterValue}
    return [*sorted(names - there), *sorted(each.__name__ for each in OPERATORS if each not in nodes)]


def _of_functions() -> Iterator[list[str]]:
    """For each function and number of arguments, the calls that its signature takes."""
    types = dict(COLUMNS)
    for name, scalar in SCALARS.items():
        if name != scalar.name:
            continue
        for number in range(_MOST_ARGUMENTS + 1):
            columns = KINDS if number < _MOST_ARGUMENTS else _KINDS_OF_THREE
            taken: list[str] = []
            for arguments in product(columns, repeat=number):
                try:
                    scalar.signature(name, tuple(types[each] for each in arguments))
                except SqlError:
                    continue
                taken += _written(scalar, arguments)
            if taken:
                yield taken


def _written(scalar: Scalar, arguments: Sequence[str]) -> Iterator[str]:
    """The texts of a call with those columns: a second column of a type is the other one, constants are literals."""
    types = dict(COLUMNS)
    own: list[tuple[str, ...]] = []
    for place, name in enumerate(arguments):
        if place in scalar.constant:
            own.append(_CONSTANTS.get(types[name], ("NULL",)))
        elif scalar.name in _GENEROUS and types[name] in (t.INT, t.BIGINT):
            own.append((SMALL,))
        else:
            own.append((f"{name}2" if name in arguments[:place] and f"{name}2" in types else name,))
    for texts in product(*own):
        yield f"{scalar.name}({', '.join(texts)})"


def _of_rewrites() -> Iterator[list[str]]:
    for name in REWRITES:
        one = [f"{name}({x})" for x in KINDS]
        two = [f"{name}({x}, {y})" for x, y in product(KINDS, (*KINDS, "'yyyy-MM-dd'", "'name'"))]
        three = [f"{name}({unit}, {x}, {y})" for unit, x, y in product(_UNITS, KINDS, KINDS)]
        yield from (one, two, three)


def _of_operators() -> Iterator[list[str]]:
    """For each operator the texts of its forms, over columns of all pairs of types."""
    types = dict(COLUMNS)
    pairs = [(x, f"{y}2" if x == y and f"{y}2" in types else y) for x, y in product(KINDS, KINDS)]
    for operator in OPERATORS:
        if operator not in _FORMS and issubclass(operator, exp.Binary):
            trees = ((x, y, operator(this=exp.column(x), expression=exp.column(y))) for x, y in pairs)
            yield from _by_kinds([(types[x], types[y.removesuffix("2")], sql_of(tree)) for x, y, tree in trees])
        for form in _FORMS.get(operator, ()):
            texts = dict.fromkeys(form.format(x=x, y=y) for x, y in pairs)
            yield list(texts)


def _by_kinds(texts: list[tuple[t.SqlType, t.SqlType, str]]) -> Iterator[list[str]]:
    """The texts of two numbers, of a DECIMAL among them, and the others: each group is drawn from by itself."""
    decimal = [text for x, y, text in texts if t.BaseType.DECIMAL in (x.base, y.base) and x.is_numeric and y.is_numeric]
    numbers = [text for x, y, text in texts if x.is_numeric and y.is_numeric and text not in decimal]
    yield from (decimal, numbers, [text for _, _, text in texts if text not in decimal and text not in numbers])


def _casts() -> Iterator[str]:
    for name, target, word in product(KINDS, _TARGETS, ("CAST", "TRY_CAST")):
        yield f"{word}({name} AS {target})"
