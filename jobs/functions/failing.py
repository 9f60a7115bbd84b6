"""Expressions that can fail on a row (`a / b`, `CAST(text AS INT)`, `a + b` out of range), in three forms.

The front end writes such an expression so that it is NULL where SQL raises an error. From that tree come

    failing(a / b)   b = 0 AND a IS NOT NULL: the condition under which it fails; this never fails itself
    lenient(a + b)   TRY_ADD(a, b): NULL where it fails
    strict(a / b)    CASE WHEN failing THEN an error ELSE lenient END

Whether an expression fails is a function of the row alone: no engine is asked for its own error, since what an engine
evaluates, and in which order, is its optimizer's business. What becomes of a row on which one fails,
`jobs.functions.failing_rows` says.

An expression that is not needed does not fail: of `b <> 0 AND a / b > 1`, and of CASE, IF and COALESCE, only what is
reached from left to right counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from sqlglot import exp

from strandline.jobs.functions.faults import by_fault, words_of
from strandline.jobs.functions.registry import find
from strandline.jobs.functions.scalars.arrays import OF_ARRAY
from strandline.jobs.functions.scalars.contract import TOTAL
from strandline.jobs.functions.scalars.decimals import OPERANDS
from strandline.jobs.functions.scalars.domains import FAIL, is_guard
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.sql.dialect import WRITTEN, sql_of
from strandline.jobs.sql.trees import all_of, any_of, call

_ADDITIVE: dict[type[exp.Expr], str] = {exp.Add: "TRY_ADD", exp.Sub: "TRY_SUBTRACT", exp.Mul: "TRY_MULTIPLY"}
_DIVISIONS = (exp.Div, exp.Mod)
_WHOLE_DIVISION = "DIV"
# Functions whose result is cast to a type that may be too narrow for it: ROUND(1e308) is no BIGINT.
_NARROWED = frozenset(
    {"ROUND", "ROUND_OF_DECIMAL", "ROUND_OF_DOUBLE", "TRUNC", "TRUNC_OF_DOUBLE", "FLOOR", "CEIL"},
)
_ITEM_BY_ITEM = frozenset({"TRANSFORM", "FILTER"})
_STEP_BY_STEP = "REDUCE"
# Conversions that are a function: NULL of a value is a text that they cannot read.
_READING = frozenset({"TEXT_TIME", "TEXT_BYTES"})
_FIRST_OF = frozenset({"COALESCE", "IFNULL"})
_CHOICE = "IF"
_SINGLE = "SINGLE_VALUE"
# What -x and ABS(x) become for a DECIMAL of many digits.
_OF_WIDE = frozenset({"OPPOSITE", "MAGNITUDE"})
WIDE = "wide"
# Functions that a conversion wraps around its operand; only the operand tells whether there was a value.
_ON_THE_WAY = frozenset(
    {"WHOLE_TEXT", "FRACTION_TEXT", "CUT", "CUT_OF_DOUBLE", "DIGITS", "BOOLEAN_TEXT", "DATE_TEXT", "INSTANT_TEXT"}
)


_MOST_NODES = 400
"""Of an expression that is written more than once: a few hundred columns, or four calls of ABS in one another."""

FAILS = "fails"
"""Mark on a column that stands for an expression: the condition under which that one fails."""


def strict(node: exp.Expression, among: exp.Expression | None = None) -> exp.Expression:
    """The expression with an error where it fails, which names it.

    Args:
        among: on no other rows; default: on any.
    """
    fails = all_of(among, failing(node))
    if failing(node) is None or fails is None:
        return lenient(node)
    error = call(FAIL, words_of(in_words(node), fails))
    return exp.Case(ifs=[exp.If(this=fails, true=error)], default=lenient(node))


def lenient(node: exp.Expression) -> exp.Expression:
    """The expression with NULL wherever it fails."""

    def made(each: exp.Expr) -> exp.Expr:
        if OPERANDS in each.meta or TOTAL in each.meta:
            return each
        if type(each) in _ADDITIVE:
            return exp.Anonymous(this=_ADDITIVE[type(each)], expressions=[each.this, each.args["expression"]])
        if isinstance(each, exp.Neg) and not isinstance(each.this, exp.Literal):
            return _opposite(each.this)
        if isinstance(each, exp.Anonymous) and each.name == "ABS":
            return _magnitude(_child(each.expressions[0]))
        outside = _outside_domain(each, lambda part: part)
        if outside is not None:
            return exp.Case(ifs=[exp.If(this=outside, true=exp.Null())], default=each.copy())
        if type(each) is exp.Cast and _is_whole_division(each.this):
            left, right = (_child(part) for part in each.this.expressions)
            too_large = _too_large(left, right, each.args["to"])
            return exp.Case(ifs=[exp.If(this=too_large, true=exp.Null())], default=each.copy())
        if type(each) is exp.Cast and (_is_arithmetic(each.this) or _is_narrowed(each.this)):
            return exp.TryCast(this=each.this, to=each.args["to"], safe=True)
        return each

    return _rebuilt(node.copy(), made, _a_step_fails)


def failing(node: exp.Expression) -> exp.Expression | None:
    """The condition under which the expression fails; None: it never does."""
    if isinstance(node, exp.Column) and FAILS in node.meta:
        found = node.meta[FAILS].copy()
        assert isinstance(found, exp.Expression)
        return found
    if isinstance(node, exp.And | exp.Or):
        left, right = _child(node.left), _child(node.right)
        decided = exp.false() if isinstance(node, exp.And) else exp.true()
        open_: exp.Expression = exp.Not(this=exp.Is(this=exp.Paren(this=lenient(left)), expression=decided))
        if is_guard(right):  # a row that the other terms leave out breaks nothing
            open_ = exp.Anonymous(this="COALESCE", expressions=[lenient(left), exp.false()])
        return any_of([failing(left), _both(open_, failing(right))])
    if isinstance(node, exp.Case):
        return _case(node)
    if isinstance(node, exp.Anonymous) and node.name in _FIRST_OF:
        return _first_of([_child(each) for each in node.expressions])
    if isinstance(node, exp.Anonymous) and node.name == _CHOICE and len(node.expressions) == 3:
        condition, true, false = (_child(each) for each in node.expressions)
        return _case(exp.Case(ifs=[exp.If(this=condition.copy(), true=true.copy())], default=false.copy()))
    if _is_operation(node):
        return any_of([condition for condition, _ in _failing_operations(node)])
    own = None if TOTAL in node.meta else _own(node)
    if own is not None:
        by_fault(own, node)
    return any_of([*(failing(child) for child in _children(node)), own, _an_item_fails(node), _a_step_fails(node)])


def can_fail(node: exp.Expression | None) -> bool:
    """True if there can be rows on which the expression fails."""
    return node is not None and failing(node) is not None


def in_words(node: exp.Expression) -> str:
    """The expression as a user would write it: without what the front end puts around operands and results."""

    def made(each: exp.Expr) -> exp.Expr:
        if WRITTEN in each.meta:
            return exp.Var(this=each.meta[WRITTEN])
        if isinstance(each, exp.TryCast):
            written = exp.TryCast if each.meta.get("asked") else exp.Cast
            return written(this=_operand(each), to=each.args["to"])
        if isinstance(each, exp.Cast) and isinstance(each.this, exp.Neg | exp.Anonymous) and WIDE in each.this.meta:
            return each.this
        if isinstance(each, exp.Anonymous) and each.name in _OF_WIDE:
            made = exp.Neg(this=each.expressions[0]) if each.name == "OPPOSITE" else call("ABS", *each.expressions)
            made.meta[WIDE] = True
            return made
        if isinstance(each, exp.Anonymous) and each.name == _WHOLE_DIVISION:
            left, right = each.expressions
            return exp.Div(this=left, expression=right)
        return each.this if type(each) is exp.Cast and _is_arithmetic(each.this) else each

    return sql_of(_named_subqueries(_rebuilt(node.copy(), made)))


def _named_subqueries(node: exp.Expression) -> exp.Expression:
    """The expression with words in the place of the columns that a subquery became which stands for a value."""

    def named(each: exp.Expr) -> exp.Expr:
        single = isinstance(each, exp.Anonymous) and each.name == _SINGLE
        return exp.Var(this="(a subquery with several rows)") if single else each

    made = node.copy().transform(named)
    assert isinstance(made, exp.Expression)
    return made


def _rebuilt(
    node: exp.Expression,
    change: Callable[[exp.Expr], exp.Expr],
    nothing: Callable[[exp.Expression], exp.Expression | None] = lambda _: None,
) -> exp.Expression:
    """The tree with `change` applied to every node, inner ones first; where `nothing` of a node holds, it is NULL."""
    fails = nothing(node)
    for child in _children(node):
        child.replace(_rebuilt(child, change, nothing))
    function = _of_items(node) or _of_steps(node)
    if function is not None:
        function.set("this", _rebuilt(_child(function.this), change, nothing))
    made = change(node)
    assert isinstance(made, exp.Expression)
    return made if fails is None else exp.Case(ifs=[exp.If(this=fails, true=exp.Null())], default=made)


def _own(node: exp.Expression) -> exp.Expression | None:
    """The condition under which this node itself fails, given that its operands have values."""
    if _is_conversion(node):
        return _lost(node, [_operand(node)])
    if type(node) is exp.Cast and _is_arithmetic(node.this):
        inner = _child(node.this)
        return _lost(node, _operands(inner) if OPERANDS in inner.meta else [inner])
    if type(node) is exp.Cast and _is_narrowed(node.this):
        return _lost(node, [_child(node.this.expressions[0])])
    if type(node) is exp.Cast and _is_whole_division(node.this):
        left, right = (_child(each) for each in node.this.expressions)
        return None if isinstance(right, exp.Literal) else _too_large(lenient(left), lenient(right), node.args["to"])
    if isinstance(node, exp.Neg) or (isinstance(node, exp.Anonymous) and node.name == "ABS"):
        operand = _child(node.this if isinstance(node, exp.Neg) else node.expressions[0])
        return None if isinstance(operand, exp.Literal) else _lost(node, [operand])
    outside = _outside_domain(node, lenient)
    if outside is not None:
        return outside
    if type(node) in _DIVISIONS:
        return _by_zero(_child(node.args["this"]), _child(node.args["expression"]))
    if isinstance(node, exp.Anonymous) and node.name == _WHOLE_DIVISION:
        left, right = (_child(each) for each in node.expressions)
        return _by_zero(left, right)
    if type(node) in _ADDITIVE:
        return _lost(node, [_child(node.args["this"]), _child(node.args["expression"])])
    return None


def _lost(node: exp.Expression, operands: Iterable[exp.Expression]) -> exp.Expression:
    """NULL although all that the operands are computed from has values.

    An operand that fails itself is NULL too: that the expression is NULL for it makes no other row fail.
    """
    parts = dict.fromkeys(each for operand in operands for each in _sources(operand))
    return _all([_is_null(lenient(node)), *(exp.Not(this=_is_null(lenient(each))) for each in parts)])


# What an expression is computed from, by operations that are NULL only where an operand is, or where they fail. A row
# on which a, b and c have values fails if `(a + b) * c` is NULL: nothing need be asked of `a + b`.


def _sources(node: exp.Expression) -> list[exp.Expression]:
    """The innermost operands of such operations; without those that are never NULL."""
    if isinstance(node, exp.Literal | exp.Boolean):
        return []
    if isinstance(node, exp.Anonymous) and node.name in _FIRST_OF and not _sources(_child(node.expressions[-1])):
        return []
    return [source for each in _operands(node) for source in _sources(each)] if _is_operation(node) else [node]


def _is_operation(node: exp.Expression) -> bool:
    if TOTAL in node.meta:
        return False
    if type(node) is exp.Cast:
        return not (_is_narrowed(node.this) or _is_whole_division(node.this))
    return OPERANDS in node.meta or type(node) in (exp.Paren, exp.Neg, *_ADDITIVE) or _is_conversion(node)


def _operands(node: exp.Expression) -> list[exp.Expression]:
    """What an operation is of; the variable of a lambda, which is a bare name, too."""
    if _is_conversion(node):
        return [_operand(node)]
    parts = [each for each in node.iter_expressions() if isinstance(each, exp.Expression)]
    return [each for each in parts if not isinstance(each, exp.DataType | exp.Lambda)]


def _failing_operations(node: exp.Expression) -> list[tuple[exp.Expression, frozenset[exp.Expression] | None]]:
    """The conditions under which some operation in an expression fails, each with the sources that have values then;
    None: not known.

    Where one below fails although the sources of this one have values, this one is NULL, which says the same.
    """
    if not _is_operation(node):
        found = failing(node)
        return [] if found is None else [(found, None)]
    below = [each for child in _children(node) for each in _failing_operations(child)]
    own = None if OPERANDS in node.meta else _own(node)
    if own is None:
        return below
    sources = frozenset(_sources(node))
    by_fault(own, node, (condition for condition, of in below if of == sources))
    return [*((condition, of) for condition, of in below if of != sources), (own, sources)]


def _is_conversion(node: exp.Expression) -> bool:
    """True of a conversion that gives NULL for a value which the type cannot hold, unless TRY_CAST asked for that."""
    reads = isinstance(node, exp.TryCast) or (isinstance(node, exp.Anonymous) and node.name in _READING)
    return reads and not node.meta.get("asked")


def _operand(node: exp.Expression) -> exp.Expression:
    """The value that a conversion converts."""
    inner = _child(node.this if isinstance(node, exp.TryCast) else node.expressions[0])
    while isinstance(inner, exp.Anonymous) and inner.name in _ON_THE_WAY:
        inner = _child(inner.expressions[0])
    return inner


def _by_zero(left: exp.Expression, right: exp.Expression) -> exp.Expression | None:
    if isinstance(right, exp.Literal) and float(right.name) != 0:
        return None
    zero = exp.EQ(this=exp.Paren(this=lenient(right)), expression=exp.Literal.number(0))
    return _all([zero, exp.Not(this=_is_null(lenient(left)))])


def _too_large(left: exp.Expression, right: exp.Expression, to: exp.Expression) -> exp.Expression:
    """The condition that the smallest number of the type `to` is divided by −1."""
    minus_one = exp.EQ(this=exp.Paren(this=right.copy()), expression=exp.Literal.number(-1))
    divided = exp.Cast(this=left.copy(), to=to.copy())
    return _all([minus_one, exp.Not(this=_is_null(left.copy())), _is_null(_opposite(divided))])


def _outside_domain(node: exp.Expr, part: Callable[[exp.Expression], exp.Expression]) -> exp.Expression | None:
    """The condition that a function has no value for its arguments, each as `part` writes it; None: it always has."""
    function = find(node.name) if isinstance(node, exp.Anonymous) else None
    if function is None or function.fails is None:
        return None
    arguments = [part(_child(each)) for each in node.expressions]
    for each in arguments:
        _said_again(each)
    found = function.fails(arguments)
    return exp.Paren(this=found) if found is not None else None


def _opposite(value: exp.Expr) -> exp.Expression:
    """`-value`, NULL where it is out of range; of the value's own type."""
    return exp.Anonymous(this="TRY_SUBTRACT", expressions=[exp.Literal.number(0), value.copy()])


def _said_again(value: exp.Expr) -> None:
    """Check that an expression may be written more than once: of calls in calls each makes a multiple of the inner one.

    Raises:
        NotSupported: it has grown too large.
    """
    if sum(1 for _ in islice(value.walk(), _MOST_NODES + 1)) > _MOST_NODES:
        raise NotSupported(
            "functions are nested too deeply here: what says on which rows they fail would be too large",
            hint="compute the inner ones in a subquery or view of their own",
        )


def _magnitude(value: exp.Expression) -> exp.Expression:
    _said_again(value)
    below = exp.LT(this=exp.Paren(this=value.copy()), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=below, true=_opposite(value))], default=value.copy())


def _case(node: exp.Case) -> exp.Expression | None:
    """The condition under which a CASE fails: in one of the conditions up to the first that holds, or in its branch.

    Those of `CASE x WHEN y` are values, of which all count.
    """
    tests = [(_child(each.this), _child(each.args["true"])) for each in node.args["ifs"]]
    default = node.args.get("default")
    found = [any_of([failing(test), failing(value)]) for test, value in tests]
    rest = failing(_child(default)) if default is not None else None
    operand = failing(_child(node.this)) if node.this is not None else None
    if not any(each is not None for each in (*found, rest, operand)):
        return None
    made = exp.Case(this=lenient(_child(node.this)) if node.this is not None else None, ifs=[])
    ifs = []
    tested: list[exp.Expression | None] = []
    for test, value in tests:
        fails = failing(test)
        if node.this is not None:
            tested.append(fails)
        elif fails is not None:
            ifs.append(exp.If(this=fails, true=exp.true()))
        ifs.append(exp.If(this=lenient(test), true=failing(value) or exp.false()))
    made.set("ifs", ifs)
    made.set("default", rest or exp.false())
    return any_of([operand, *tested, exp.Paren(this=made)])


def _first_of(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
    """The condition under which COALESCE fails: in its first argument, or in a later one when all before are NULL."""
    found = None
    for argument in reversed(arguments):
        found = any_of([failing(argument), _both(_is_null(lenient(argument)), found)])
    return found


def _of_items(node: exp.Expr) -> exp.Lambda | None:
    """The function of a call that computes each item of an array by itself; None for any other node."""
    if not isinstance(node, exp.Anonymous) or node.name not in _ITEM_BY_ITEM or len(node.expressions) != 2:
        return None
    function = node.expressions[1]
    return function if isinstance(function, exp.Lambda) else None


def _an_item_fails(node: exp.Expression) -> exp.Expression | None:
    """The condition that the function of TRANSFORM or FILTER fails on an item."""
    function = _of_items(node)
    inside = failing(_child(function.this)) if function is not None else None
    if function is None or inside is None:
        return None
    test = exp.Lambda(this=inside, expressions=[each.copy() for each in function.expressions])
    items = exp.Anonymous(this="FILTER", expressions=[lenient(_child(node.expressions[0])), test])
    found = exp.Anonymous(this="ARRAY_LENGTH", expressions=[items])
    return exp.Paren(this=exp.GT(this=found, expression=exp.Literal.number(0)))


def _of_steps(node: exp.Expr) -> exp.Lambda | None:
    """The function of REDUCE, whose result at one item is what it goes on with; None for any other node."""
    if not isinstance(node, exp.Anonymous) or node.name != _STEP_BY_STEP or len(node.expressions) != 3:
        return None
    function = node.expressions[2]
    return function if isinstance(function, exp.Lambda) else None


def _a_step_fails(node: exp.Expression) -> exp.Expression | None:
    """The condition that the function of REDUCE fails on its way: the same way, which remembers whether it failed.

    REDUCE(items, state, (s, x) => f)
        REDUCE(items, STRUCT(v := state, f := FALSE), (__r, x) =>
            TRANSFORM(ARRAY[__r->v], s => STRUCT(v := f, f := __r->f OR <f fails>))[1])->f
    """
    function = _of_steps(node)
    inside = failing(_child(function.this)) if function is not None else None
    if function is None or inside is None:
        return None
    items, state = (lenient(_child(each)) for each in node.expressions[:2])
    _said_again(inside)
    before, failed = (exp.Dot(this=exp.to_identifier("__r"), expression=exp.to_identifier(name)) for name in "vf")
    now = exp.Or(this=failed, expression=call("COALESCE", exp.Paren(this=inside), exp.false()))
    step = exp.Lambda(
        this=_remembering(lenient(_child(function.this)), now), expressions=[function.expressions[0].copy()]
    )
    over_one = exp.Anonymous(this="TRANSFORM", expressions=[exp.Array(expressions=[before]), step])
    first = exp.Bracket(this=over_one, expressions=[exp.Literal.number(1)])
    first.meta[OF_ARRAY] = True
    steps = exp.Lambda(this=first, expressions=[exp.to_identifier("__r"), function.expressions[1].copy()])
    way = exp.Anonymous(this=_STEP_BY_STEP, expressions=[items, _remembering(state, exp.false()), steps])
    return _all([exp.Not(this=_is_null(state.copy())), exp.Dot(this=way, expression=exp.to_identifier("f"))])


def _remembering(value: exp.Expression, failed: exp.Expression) -> exp.Anonymous:
    pairs = [
        exp.PropertyEQ(this=exp.to_identifier(name), expression=part) for name, part in (("v", value), ("f", failed))
    ]
    return exp.Anonymous(this="STRUCT", expressions=pairs)


def _children(node: exp.Expression) -> list[exp.Expression]:
    skipped = exp.Identifier | exp.DataType | exp.Lambda
    return [
        child
        for child in node.iter_expressions()
        if isinstance(child, exp.Expression) and not isinstance(child, skipped)
    ]


def _child(node: object) -> exp.Expression:
    assert isinstance(node, exp.Expression)
    return node


def _is_arithmetic(node: object) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, (*_ADDITIVE, *_DIVISIONS)) or (
        isinstance(node, exp.Anonymous) and node.name in _ADDITIVE.values()
    )


def _is_whole_division(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.name == _WHOLE_DIVISION


def _is_narrowed(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.name in _NARROWED


def _is_null(node: exp.Expression) -> exp.Expression:
    return exp.Is(this=exp.Paren(this=node), expression=exp.Null())


def _both(left: exp.Expression, right: exp.Expression | None) -> exp.Expression | None:
    return None if right is None else _all([left, right])


def _all(parts: list[exp.Expression]) -> exp.Expression:
    made = parts[0]
    for part in parts[1:]:
        made = exp.And(this=made, expression=part)
    return exp.Paren(this=made)
