"""NULL in expressions with SEMANTICS='ksql': a comparison with NULL is FALSE.

    a = b, a < b, a IN (b), a BETWEEN b AND c, a LIKE b     FALSE, not NULL
    TRANSFORM(numbers, x => x + 1) with a NULL in numbers   NULL, as any computation that fails: not [.., NULL]

WHERE, CASE and HAVING treat NULL like FALSE, so a comparison that is itself their condition stays as it is, and can be
used for a join.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.stage import Output
from strandline.jobs.query.logical.query import Block

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Like, exp.Escape)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_FUNCTIONS = ("TRANSFORM", "FILTER")


def ksql_block(block: Block) -> Block:
    """A block whose expressions all have ksqlDB's meaning of NULL; join conditions stay as they are."""
    return replace(
        block,
        where=block.where and ksql_condition(block.where),
        having=block.having and ksql_condition(block.having),
        qualify=block.qualify and ksql_condition(block.qualify),
        outputs=_outputs(block.outputs),
        expand=_outputs(block.expand),
        group=block.group and _outputs(block.group),
        calls=tuple(
            replace(call, arguments=tuple(ksql_value(argument) for argument in call.arguments)) for call in block.calls
        ),
        partition_by=tuple(ksql_value(node) for node in block.partition_by),
    )


def _outputs(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    return tuple(replace(output, expression=ksql_value(output.expression)) for output in outputs)


def ksql_value(expression: exp.Expression) -> exp.Expression:
    """An elaborated expression whose value is shown or stored, with ksqlDB's meaning of NULL."""
    return _value(expression.copy())


def ksql_condition(expression: exp.Expression) -> exp.Expression:
    """An elaborated condition with ksqlDB's meaning of NULL; the condition itself may stay NULL instead of FALSE."""
    return _condition(expression.copy())


def _condition(node: exp.Expression) -> exp.Expression:
    if isinstance(node, (exp.And, exp.Or)):
        for side in ("this", "expression"):
            node.set(side, _condition(node.args[side]))
        return node
    if isinstance(node, exp.Paren):
        node.set("this", _condition(node.this))
        return node
    return _with_parts(node)


def _value(node: exp.Expression) -> exp.Expression:
    node = _with_parts(node)
    if isinstance(node, _COMPARISONS):
        return exp.Anonymous(this="COALESCE", expressions=[node, exp.false()])
    if isinstance(node, exp.Anonymous) and node.name in _FUNCTIONS:
        return _unless_failing(node)
    return node


def _with_parts(node: exp.Expression) -> exp.Expression:
    """The node with its parts converted; a WHEN and the LIKE of an ESCAPE are converted as conditions."""
    for key, part in list(node.args.items()):
        parts = part if isinstance(part, list) else [part]
        convert = _condition if _decides(node, key) else _value
        made = [convert(each) if isinstance(each, exp.Expression) else each for each in parts]
        if any(isinstance(each, exp.Expression) for each in parts):
            node.set(key, made if isinstance(part, list) else made[0])
    return node


def _decides(node: exp.Expression, key: str) -> bool:
    """True if NULL in that part counts as FALSE, or if the part is only the inside of a comparison."""
    in_case = (
        isinstance(node, exp.If) and key == "this" and not (isinstance(node.parent, exp.Case) and node.parent.this)
    )
    return in_case or (isinstance(node, exp.Escape) and key == "this")


def _unless_failing(node: exp.Anonymous) -> exp.Expression:
    """NULL instead of the array when its function computes with a NULL for one of the items."""
    items, function = node.expressions
    names = {variable.name for variable in function.expressions}
    operands = [side for each in function.this.find_all(*_ARITHMETIC) for side in (each.left, each.right)]
    uses = [side for side in operands if any(name.name in names for name in side.find_all(exp.Identifier))]
    if not uses:
        return node
    failing: exp.Expression = exp.Is(this=uses[0].copy(), expression=exp.Null())
    for side in uses[1:]:
        failing = exp.Or(this=failing, expression=exp.Is(this=side.copy(), expression=exp.Null()))
    found = exp.Anonymous(
        this="FILTER",
        expressions=[
            items.copy(),
            exp.Lambda(this=failing, expressions=[each.copy() for each in function.expressions]),
        ],
    )
    none = exp.EQ(this=exp.Anonymous(this="ARRAY_LENGTH", expressions=[found]), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=none, true=node)])
