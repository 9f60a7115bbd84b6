"""The record key of a query's rows: the columns that ksqlDB's rules choose for it.

| query | key |
| --- | --- |
| PARTITION BY a, b | a, b; of NULL none |
| GROUP BY a, b | a, b |
| one input | that of the input |
| join on l.x = r.y | l.x or r.y, or what an earlier join set equal to them |
| join of tables on a column of the left that is not its key | the left table's key |
| FULL JOIN, or expressions on both sides | ROWKEY |

CREATE STREAM and CREATE TABLE must select it (`jobs.query.clauses.ksql`); a materialized view may leave it
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.definitions import Kind, Semantics
from strandline.jobs.model.stage import Output
from strandline.jobs.query.clauses.joins import Joins
from strandline.jobs.query.inputs import ROWKEY, FromItem, Inputs, columns_equated, is_equality
from strandline.jobs.query.logical import Block
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import conjuncts

Alternatives = list[tuple[exp.Expression, ...]]
"""Lists of expressions, each of which can serve as the key."""


def with_key(block: Block, joins: Joins, kind: Kind | None, semantics: Semantics) -> Block:
    """Add the record key to a block, or `unseen_key` if the key is not selected.

    Args:
        kind: of ksqlDB's statement; None for any other query.
        semantics: with `ksql`, the key of an outer join is never NULL: it is the value that the join is on.
    """
    inputs = joins.inputs
    repeated = any(part.read for part in inputs.parts)
    if block.analytic or block.distinct or (repeated and block.group is None and kind is None):
        return block
    if block.group is not None:
        return _with_group_key(block, inputs)
    if block.partition_by:
        if isinstance(block.partition_by[0], exp.Null):
            return block
        what, wanted = "expressions of PARTITION BY", [tuple(block.partition_by)]
    elif len(joins.froms) == 1:
        what, wanted = "key of its input", _input_keys(inputs.parts[0])
    elif kind is None and not any(part.stream for part in inputs.parts):
        what, wanted = "keys of its inputs", _identifying_keys(joins)
    else:
        what, wanted = "column that it joins on", _join_keys(joins)
    found = _shown_key(wanted, block.outputs)
    if found is None:
        return replace(block, unseen_key=_in_words(wanted, inputs, what))
    made = replace(block, key=found)
    return _never_null(made, joins, wanted) if semantics == "ksql" and not block.partition_by else made


def _never_null(block: Block, joins: Joins, wanted: Alternatives) -> Block:
    """Give the key column the value that its joins are on, whichever side of an outer join is missing.

    Args:
        wanted: the columns that are equal to it where nothing is missing.
    """
    rowkey, kinds = joins.inputs.rowkey, [each.join for each in joins.froms[1:]]
    # After a RIGHT JOIN the value is on its right side, which later joins do not name.
    if rowkey is None or not {"left", "right"} & set(kinds) or "right" in kinds[:-1] or len(block.key) != 1:
        return block
    equal = {sql_of(each) for alternative in wanted for each in alternative}
    if not any(sql_of(side) in equal for side in _last_sides(joins)):
        return block  # a foreign key: the left table's own key is never missing
    # Where that value is selected beside the key, the two are told apart: each is selected once.
    beside = any(sql_of(each.expression) == sql_of(rowkey.expression) for each in block.outputs)

    def never_null(output: Output) -> exp.Expression:
        value = rowkey.expression.copy()
        if not beside or sql_of(output.expression) == sql_of(value):
            return value
        return exp.Anonymous(this="COALESCE", expressions=[output.expression.copy(), value])

    outputs = tuple(
        replace(output, expression=never_null(output))
        if output.name in block.key and output.type == rowkey.type and sql_of(output.expression) in equal
        else output
        for output in block.outputs
    )
    return replace(block, outputs=outputs)


def _last_sides(joins: Joins) -> tuple[exp.Expression, ...]:
    last = joins.froms[-1]
    return _sides(last.on, last.alias, {each.alias for each in joins.froms[:-1]}) or ()


def _with_group_key(block: Block, inputs: Inputs) -> Block:
    assert block.group is not None
    visible = {output.name for output in block.outputs}
    missing = [inputs.words(key.expression) for key in block.group if key.name not in visible]
    if missing:
        return replace(block, unseen_key=f"expressions of GROUP BY: {', '.join(missing)}")
    return block if block.sets else replace(block, key=tuple(key.name for key in block.group))


def _shown_key(alternatives: Alternatives, outputs: Sequence[Output]) -> tuple[str, ...] | None:
    """The outputs that hold the first alternative that is selected completely; None when there is none."""
    names: dict[str, str] = {}
    for output in outputs:
        names.setdefault(sql_of(output.expression), output.name)
    for wanted in alternatives:
        found = [names.get(sql_of(each)) for each in wanted]
        if None not in found:
            return tuple(name for name in found if name is not None)
    return None


def _in_words(alternatives: Alternatives, inputs: Inputs, what: str) -> str:
    made = sql_of(inputs.rowkey.expression) if inputs.rowkey is not None and inputs.synthetic_key else None

    def name(each: exp.Expression) -> str:
        return ROWKEY.upper() if sql_of(each) == made else inputs.words(each)

    return f"{what}: {' or '.join(', '.join(name(each) for each in wanted) for wanted in alternatives)}"


def _input_keys(part: FromItem) -> Alternatives:
    """The key of an input, as the only alternative; an empty list of expressions when it has none."""
    return [tuple(part.column(name) for name in part.key)]


def _join_keys(joins: Joins) -> Alternatives:
    """The alternatives that ksqlDB accepts as the key of a join."""
    parts = joins.inputs.parts
    found: Alternatives = _input_keys(parts[0])
    for number, each in enumerate(joins.written[1:], 1):
        sides = _sides(each.on, each.alias, {part.alias for part in parts[:number]})
        if sides is None:
            continue
        left, right = sides
        texts = {sql_of(wanted[0]) for wanted in found if len(wanted) == 1}
        if each.join == "full" or not any(isinstance(side, exp.Column) for side in sides):
            assert joins.inputs.rowkey is not None
            found = [(joins.inputs.rowkey.expression,)]
        elif not any(part.stream for part in parts[: number + 1]) and sql_of(left) not in texts:
            continue  # a foreign key: the rows stay those of the left table
        else:
            earlier = found if sql_of(left) in texts else []
            found = [*earlier, *((side,) for side in (left, right) if isinstance(side, exp.Column))]
    return list({tuple(sql_of(each) for each in wanted): wanted for wanted in found}.values())


def _identifying_keys(joins: Joins) -> Alternatives:
    """The columns that identify a row of a join of tables: the key of each input that may join several times."""
    wanted: list[exp.Expression] = []
    for part, each in zip(joins.inputs.parts, joins.written, strict=True):
        if each.one_row or (each.on is not None and part.row_key and _at_most_one(part, each.on, each.join)):
            continue
        if not part.row_key:
            return []
        wanted += [part.column(name) for name in part.row_key]
    return [tuple(wanted)]


def _at_most_one(part: FromItem, on: exp.Expression, join: str) -> bool:
    return join in ("inner", "left") and columns_equated(on, part.alias).issuperset(part.row_key)


def _sides(on: exp.Expression | None, alias: str, known: set[str]) -> tuple[exp.Expression, exp.Expression] | None:
    """The first equality of a join's condition: the side over the earlier inputs, and the joined input's."""
    for term in conjuncts(on):
        if isinstance(term, exp.EQ) and is_equality(term, alias, known):
            own_first = any(node.table == alias for node in term.this.find_all(exp.Column))
            return (term.expression, term.this) if own_first else (term.this, term.expression)
    return None
