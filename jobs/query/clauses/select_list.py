"""The SELECT list: its columns, the names that they get, and the names that they cannot have.

FROM s                     *, s.*      the columns by their names
FROM l JOIN r              *, l.*      l_id, l_name, r_id, …
FROM l JOIN r              l.id, r.id  l_id, r_id: ksqlDB prefixes what both inputs have; a materialized view
                                       only what it selects twice
a + 1                                  ksql_col_0
address->*                             a column for each field
* EXCEPT (a), * EXCLUDE (a)            the others
* REPLACE (a + 1 AS a)                 all of them, with another value at the place of one
* RENAME (a AS b)                      all of them, with another name for one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from jobs.model.columns import META_COLUMNS, PSEUDO_COLUMNS, WINDOW_BOUNDS
from jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from jobs.model.names import alike, differ_only_in_case
from jobs.model.stage import Output
from jobs.model.types import BaseType
from jobs.query.clauses.inputs import ROWKEY, Inputs, Part
from jobs.query.expressions.infer import Aggregate, infer
from jobs.query.expressions.scope import Typed
from jobs.sql.dialect import position_of, sql_of
from jobs.sql.trees import identifier

RESERVED = frozenset({*PSEUDO_COLUMNS, *(name for name, _ in META_COLUMNS)})
"""Names that no column of a source or view can have; nor those that begin with two underscores."""
_STORED = tuple(name for name, _ in META_COLUMNS)


def is_reserved(name: str) -> bool:
    """True if no column can have that name. Those that are stored are taken in any case: `_OFFSET` is `_offset`."""
    return name in RESERVED or name.lower() in _STORED or name.startswith("__")


@dataclass(frozen=True)
class _Item:
    """An output and its node in the text; `part` is the input of a column that was written without AS."""

    output: Output
    node: exp.Expr
    part: Part | None = None


def read_outputs(select: exp.Select, inputs: Inputs, hook: Aggregate, *, prefix: bool) -> tuple[Output, ...]:
    """The visible columns of a SELECT, elaborated; an expression without a name is `ksql_col_0`, …, as in ksqlDB.

    Args:
        hook: reads values that only the SELECT list can hold: aggregates, functions over windows, subqueries.
        prefix: ksqlDB's rule: a column that several inputs have is prefixed, also when it is selected once.

    Raises:
        InvalidQuery: a column without a type, or with a name that is reserved or taken; and as `infer`.
    """
    items: list[_Item] = []
    names = _Names(inputs, prefix=prefix)
    for node in select.expressions:
        stars = _stars(node, inputs, prefix=prefix)
        if stars is not None:
            items += _changed(stars, node, lambda value: infer(value, inputs, hook))
            continue
        name = names.of(node)
        found = infer(node.this if isinstance(node, exp.Alias) else node, inputs, hook)
        part = _part_of(node, found, inputs)
        items.append(_Item(Output(name, found.expression, found.type), node, part))
    if prefix and any(isinstance(node, exp.Star) for node in select.expressions):
        items = [*_unseen_keys(select, inputs, names, items), *items]
    if not items:
        line, place = position_of(select)
        raise InvalidQuery("the SELECT list is empty: EXCEPT leaves no column", line=line, column=place)
    items = _told_apart(items, inputs, prefix=prefix)
    for number, item in enumerate(items):
        _check(item, items[:number], ksql=prefix)
    return tuple(item.output for item in items)


def _stars(node: exp.Expr, inputs: Inputs, *, prefix: bool) -> list[_Item] | None:
    """The columns that `*`, `a.*` or `struct->*` stands for; None for anything else."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
        return _fields(node, inputs)
    if isinstance(node, exp.Star):
        found = [item for part in inputs.parts for item in _columns(part, node, inputs)]
        if prefix and inputs.rowkey is not None and inputs.synthetic_key:
            found.insert(0, _Item(Output(ROWKEY, inputs.rowkey.expression.copy(), inputs.rowkey.type), node))
        return found
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        named = inputs.part(node.table)
        if named is None:
            line, place = position_of(node)
            known = [part.alias for part in inputs.parts]
            raise UnknownName.among("stream, table or alias", node.table, known, line=line, column=place)
        return _columns(named, node, inputs)
    return None


def _columns(part: Part, node: exp.Expr, inputs: Inputs) -> list[_Item]:
    several = len(inputs.parts) > 1
    return [
        _Item(Output(f"{part.alias}_{name}" if several else name, part.column(name), sql_type), node)
        for name, sql_type in part.columns
    ]


def _fields(node: exp.Dot, inputs: Inputs) -> list[_Item]:
    struct = infer(node.this, inputs)
    if struct.type.base is not BaseType.STRUCT:
        line, place = position_of(node)
        raise TypeMismatch(
            f"->* takes the fields of a STRUCT; {sql_of(node.this)} is {struct.type}", line=line, column=place
        )
    found = []
    for name, _ in struct.type.fields:
        field = infer(exp.Dot(this=node.this.copy(), expression=identifier(name)), inputs)
        found.append(_Item(Output(name, field.expression, field.type), node))
    return found


def _changed(items: list[_Item], node: exp.Expr, typed: Callable[[exp.Expr], Typed]) -> list[_Item]:
    """The columns of a star without those of its EXCEPT, with the values of its REPLACE and the names of its RENAME."""
    star = node.find(exp.Star)
    assert star is not None
    for left_out in star.args.get("except_") or ():
        place = _place_of(left_out, items)
        items = [item for number, item in enumerate(items) if number != place]
    for alias in star.args.get("replace") or ():
        place = _place_of(alias.args["alias"], items)
        found = typed(alias.this)
        items[place] = _Item(Output(items[place].output.name, found.expression, found.type), alias)
    renamed = [(_place_of(each.this, items), each) for each in star.args.get("rename") or ()]
    for place, each in renamed:
        items[place] = _Item(replace(items[place].output, name=each.alias), each)
    return items


def _place_of(node: exp.Expr, items: list[_Item]) -> int:
    """The place of the column that EXCEPT, REPLACE or RENAME names: as `*` gives it, or as its input has it."""
    table = node.args.get("table")
    read = [(each.name, each.args.get("table")) for each in (item.output.expression for item in items)]
    named = [item.output.name == node.name and table is None for item in items]
    held = [name == node.name and table in (None, of) for name, of in read]
    found = [place for place, fits in enumerate(named if any(named) else held) if fits]
    line, column = position_of(node)
    if not found:
        raise UnknownName.among("column", sql_of(node), [i.output.name for i in items], line=line, column=column)
    if len(found) > 1:
        shown = " or ".join(items[place].output.name for place in found)
        raise InvalidQuery(f"column '{node.name}' is ambiguous: {shown}", line=line, column=column)
    return found[0]


def _unseen_keys(select: exp.Select, inputs: Inputs, names: _Names, items: list[_Item]) -> list[_Item]:
    """The key columns of PARTITION BY that are not selected: ksqlDB's `*` stands for them too."""
    clause = select.args.get("partition_by")
    shown = {sql_of(item.output.expression) for item in items}
    found = []
    for node in clause.expressions if clause is not None else ():
        key = infer(node, inputs)
        if not isinstance(key.expression, exp.Null) and sql_of(key.expression) not in shown:
            pseudo = isinstance(node, exp.Column) and node.name in RESERVED
            name = names.made_up() if pseudo else names.of(node)
            found.append(_Item(Output(name, key.expression, key.type), node))
    return found


class _Names:
    """Names for the items of one SELECT list, as ksqlDB gives them.

    a AS b  b        a  a        a->b  b, or b_1 where an input has a b        a + 1  ksql_col_0, ksql_col_1, …
    """

    def __init__(self, inputs: Inputs, *, prefix: bool) -> None:
        self._held = {name for part in inputs.parts for name, _ in part.columns}
        self._avoided = self._held if prefix else set()
        self._given: set[str] = set()

    def of(self, node: exp.Expr) -> str:
        """The name of an item."""
        if isinstance(node, exp.Alias):
            return node.alias
        if isinstance(node, exp.Column):
            return node.name
        if isinstance(node, exp.Dot):
            field = node.expression.name
            return self._free((field if n == 0 else f"{field}_{n}" for n in count()), self._avoided)
        return self.made_up()

    def made_up(self) -> str:
        """A generated name, for an item without one or with a name that no column may have, as ROWTIME."""
        return self._free((f"ksql_col_{n}" for n in count()), self._held)

    def _free(self, names: Iterable[str], taken: set[str]) -> str:
        name = next(name for name in names if name not in taken and name not in self._given)
        self._given.add(name)
        return name


def _part_of(node: exp.Expr, found: Typed, inputs: Inputs) -> Part | None:
    if not isinstance(node, exp.Column) or not isinstance(found.expression, exp.Column):
        return None
    return inputs.part(found.expression.table)


def _told_apart(items: list[_Item], inputs: Inputs, *, prefix: bool) -> list[_Item]:
    """The items, with the alias of the input before plain columns that share a name."""
    if prefix:
        held = Counter(name for part in inputs.parts for name, _ in part.columns)
    else:
        held = Counter(item.output.name for item in items if item.part is not None)
    return [
        replace(item, output=replace(item.output, name=f"{item.part.alias}_{item.output.name}"))
        if item.part is not None and held[item.output.name] > 1 and len(inputs.parts) > 1
        else item
        for item in items
    ]


def _check(item: _Item, earlier: list[_Item], *, ksql: bool) -> None:
    name, found = item.output.name, item.output.expression
    message, hint = None, "give it a name with AS"
    bound = name.lower() in WINDOW_BOUNDS and not (isinstance(found, exp.Column) and found.name == name)
    # To a materialized view ROWTIME and its like are names as others: they hide the pseudo column.
    if (is_reserved(name) and (ksql or name not in PSEUDO_COLUMNS)) or bound:
        message = f"'{name}' is reserved: it cannot be the name of a column"
    elif any(other.output.name == name for other in earlier):
        message = f"two columns are named '{name}'"
    elif (taken := alike(name, [other.output.name for other in earlier])) is not None:
        message = differ_only_in_case("columns", taken, name)
    elif item.output.type.base is BaseType.NULL:
        message, hint = f"column '{name}' is NULL and has no type", "CAST(NULL AS …)"
    if message is not None:
        line, place = position_of(item.node)
        raise InvalidQuery(message, line=line, column=place, hint=hint)
