"""The SELECT list: its columns, what `*` stands for, the names that they get and cannot have, and table functions.

FROM l JOIN r              l.id, r.id  l_id, r_id: ksqlDB prefixes what both inputs have; a materialized view
                                       only what it selects twice; a pull query has id, id_1
a + 1                                  ksql_col_0; a pull query has PostgreSQL's names (`column_name`)
*, s.*, address->*                     as `stars_of` says
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import META_COLUMNS, PSEUDO_COLUMNS, WINDOW_BOUNDS, alike, differ_only_in_case
from strandline.jobs.model.types import BaseType, has_null, without_null
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.infer import Aggregate, infer
from strandline.jobs.query.expressions.nested import TABLE_FUNCTIONS, items_of
from strandline.jobs.query.expressions.scope import Infer, Typed, column
from strandline.jobs.query.inputs import ROWKEY, FromItem, Inputs
from strandline.jobs.query.pulled import Unnamed, column_name
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import identifier

RESERVED = frozenset({*PSEUDO_COLUMNS, *(name for name, _ in META_COLUMNS)})
"""Names that no column of a source or view can have; nor those that begin with two underscores."""
_STORED = tuple(name for name, _ in META_COLUMNS)
_MADE = re.compile(r"__([a-z][0-9]*|at|begins|clock|item|millis|one|session)")
"""The names of a recomputation's own columns, which one of a pull query cannot have."""


def is_reserved(name: str) -> bool:
    """True if no column can have that name. Stored names are taken in any case: `_OFFSET` is `_offset`."""
    return name in RESERVED or name.lower() in _STORED or name.startswith("__")


def read_outputs(
    select: exp.Select,
    inputs: Inputs,
    hook: Aggregate,
    *,
    naming: Naming,
    unnamed: Unnamed,
    named: Callable[[Output], None],
    branch: bool = False,
) -> tuple[Output, ...]:
    """Read the SELECT list into visible columns.

    Args:
        hook: reads values that only the SELECT list can hold: aggregates, functions over windows, subqueries.
        naming: with `ksql` a column that several inputs have is prefixed, also when it is selected once.
        unnamed: whose names an expression gets that has none: `ksql_col_0`, …, or `count`, `sum`, `?column?`.
        named: told of each item with a name of its own, before the next one is read.
        branch: a column that is NULL in every row keeps no type: the query is combined with others.

    Raises:
        InvalidQuery: a column without a type, or with a name that is reserved or taken; and as `infer`.
    """
    items: list[Item] = []
    prefix, pulls = naming == "ksql", naming == "pull"
    names = _Names(inputs, prefix=prefix, unnamed=unnamed)
    for node in select.expressions:
        stars = stars_of(node, inputs, naming)
        if stars is not None:
            items += changed(stars, node, lambda value: infer(value, inputs, hook))
            continue
        name = names.of(node)
        found = infer(node.this if isinstance(node, exp.Alias) else node, inputs, hook)
        part = _part_of(node, found, inputs)
        items.append(Item(Output(name, found.expression, found.type), node, part))
        if isinstance(node, exp.Alias):
            named(items[-1].output)
    if prefix and any(isinstance(node, exp.Star) for node in select.expressions):
        items = [*_unseen_keys(select, inputs, names, items), *items]
    if not items:
        line, place = position_of(select)
        why = "EXCEPT leaves no column" if inputs.parts else "* without FROM reads nothing"
        raise InvalidQuery(f"the SELECT list is empty: {why}", line=line, column=place)
    items = _numbered(items) if pulls else _told_apart(items, inputs, prefix=prefix)
    for number, item in enumerate(items):
        _check(item, items[:number], naming)
    outputs = tuple(item.output for item in items)
    return outputs if branch or pulls else tuple(map(_with_type, outputs))


def _with_type(output: Output) -> Output:
    """A column that is NULL in every row is a text, as in PostgreSQL."""
    if not has_null(output.type):
        return output
    known = without_null(output.type)
    return replace(output, expression=widened(Typed(output.expression, output.type), known).expression, type=known)


def _unseen_keys(select: exp.Select, inputs: Inputs, names: _Names, items: list[Item]) -> list[Item]:
    """The key columns of PARTITION BY that are not selected: ksqlDB's `*` stands for them too."""
    clause = select.args.get("partition_by")
    shown = {sql_of(item.output.expression) for item in items}
    found = []
    for node in clause.expressions if clause is not None else ():
        key = infer(node, inputs)
        if not isinstance(key.expression, exp.Null) and sql_of(key.expression) not in shown:
            pseudo = isinstance(node, exp.Column) and node.name in RESERVED
            name = names.made_up() if pseudo else names.of(node)
            found.append(Item(Output(name, key.expression, key.type), node))
    return found


class _Names:
    """Names for the items of one SELECT list.

    a AS b  b        a  a        a->b  b, or b_1 where an input has a b        a + 1  ksql_col_0, ksql_col_1, …
    """

    def __init__(self, inputs: Inputs, *, prefix: bool, unnamed: Unnamed) -> None:
        self._unnamed = unnamed
        self._held = {name for part in inputs.parts for name, _ in part.columns}
        self._avoided = self._held if prefix else set()
        self._given: set[str] = set()

    def of(self, node: exp.Expr) -> str:
        """The name of an item."""
        if self._unnamed == "postgres":
            return column_name(node)
        if isinstance(node, exp.Alias):
            return node.alias
        if isinstance(node, exp.Column):
            return node.name
        if isinstance(node, exp.Dot):
            field = node.expression.name
            return self._free(_with_numbers(field), self._avoided)
        return self.made_up()

    def made_up(self) -> str:
        """Generate a name for an item without one, or with a name that no column may have, as ROWTIME."""
        return self._free((f"ksql_col_{n}" for n in count()), self._held)

    def _free(self, names: Iterable[str], taken: set[str]) -> str:
        name = next(name for name in names if name not in taken and name not in self._given)
        self._given.add(name)
        return name


def _part_of(node: exp.Expr, found: Typed, inputs: Inputs) -> FromItem | None:
    if not isinstance(node, exp.Column) or not isinstance(found.expression, exp.Column):
        return None
    return inputs.holder(found.expression)


def _told_apart(items: list[Item], inputs: Inputs, *, prefix: bool) -> list[Item]:
    """Prefix plain columns that share a name with the alias of their input."""
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


def _numbered(items: list[Item]) -> list[Item]:
    """Number columns of a pull query that share a name, `id_1`, since JSON needs different names."""
    found: list[Item] = []
    for item in items:
        name, taken = item.output.name, [each.output.name for each in found]
        free = next(each for each in _with_numbers(name) if alike(each, taken) is None)
        found.append(item if free == name else replace(item, output=replace(item.output, name=free)))
    return found


def _with_numbers(name: str) -> Iterable[str]:
    return (name if number == 0 else f"{name}_{number}" for number in count())


def _check(item: Item, earlier: list[Item], naming: Naming) -> None:
    name, found = item.output.name, item.output.expression
    message, hint = None, "give it a name with AS"
    bound = name.lower() in WINDOW_BOUNDS and not (isinstance(found, exp.Column) and found.name == name)
    # To a materialized view ROWTIME and its like are names as others: they hide the pseudo column.
    reserved = _MADE.fullmatch(name) is not None if naming == "pull" else is_reserved(name)
    if (reserved and (naming == "ksql" or name not in PSEUDO_COLUMNS)) or bound:
        message = f"'{name}' is reserved: it cannot be the name of a column"
    elif any(other.output.name == name for other in earlier):
        message = f"two columns are named '{name}'"
    elif (taken := alike(name, [other.output.name for other in earlier])) is not None:
        message = differ_only_in_case("columns", taken, name)
    elif item.output.type.base is BaseType.NULL and naming == "ksql":
        message, hint = f"column '{name}' is NULL and has no type", "CAST(NULL AS …)"
    elif has_null(item.output.type) and naming == "ksql":
        message, hint = f"column '{name}' holds a NULL that has no type: {item.output.type}", "CAST(NULL AS …)"
    if message is not None:
        raise InvalidQuery(message, hint=hint).placed(*position_of(item.node))


# The columns that `*` stands for in a SELECT list, and what is said of them behind it.
#
# FROM s                     *, s.*      the columns by their names
# FROM l JOIN r              *, l.*      id, name, id, …, that of USING once; in ksqlDB's words l_id, l_name, r_id
# address->*                             a column for each field
# * EXCEPT (a), * EXCLUDE (a)            the others
# * REPLACE (a + 1 AS a)                 all of them, with another value at the place of one
# * RENAME (a AS b)                      all of them, with another name for one

Naming = Literal["ksql", "prefixed", "view", "pull"]
"""Whose rules hold; `prefixed` are a view's with ksqlDB's names for the columns of `*` over joins."""
"""Whose rules give columns their names: those of ksqlDB's statements, a materialized view's, a pull query's."""


@dataclass(frozen=True)
class Item:
    """An output and its node in the text; `part` is the input of a column that was written without AS."""

    output: Output
    node: exp.Expr
    part: FromItem | None = None


def stars_of(node: exp.Expr, inputs: Inputs, naming: Naming) -> list[Item] | None:
    """Expand `*`, `a.*` or `struct->*` to columns; return None for anything else."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
        return _fields(node, inputs)
    if isinstance(node, exp.Star):
        if naming in ("view", "pull"):
            return _plain_star(node, inputs)
        found = [item for part in inputs.parts for item in _columns(part, node, inputs, naming)]
        if naming == "ksql" and inputs.rowkey is not None and inputs.synthetic_key:
            found.insert(0, Item(Output(ROWKEY, inputs.rowkey.expression.copy(), inputs.rowkey.type), node))
        return found
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        named = inputs.part(node.table)
        if named is None:
            line, place = position_of(node)
            known = [part.alias for part in inputs.parts]
            raise UnknownName.among("stream, table or alias", node.table, known, line=line, column=place)
        return _columns(named, node, inputs, naming)
    return None


def _plain_star(node: exp.Expr, inputs: Inputs) -> list[Item]:
    """`*` as in SQL: all columns by their own names, that of a JOIN … USING once."""
    found: list[Item] = []
    shown: set[str] = set()
    for part in inputs.parts:
        for item in _columns(part, node, inputs, "view"):
            name = item.output.name
            merged = inputs.merged[name] if part.alias in inputs.equated.get(name, ()) else None
            if merged is None:
                found.append(item)
            elif name not in shown:
                shown.add(name)
                found.append(Item(Output(name, merged.expression.copy(), merged.type), node))
    return found


def _columns(part: FromItem, node: exp.Expr, inputs: Inputs, naming: Naming) -> list[Item]:
    named_apart = naming in ("ksql", "prefixed")
    prefix = named_apart and len(inputs.parts) > 1 and not part.unnamed
    holder = None if named_apart or part.unnamed else part
    return [
        Item(Output(f"{part.alias}_{name}" if prefix else name, part.column(name), sql_type), node, holder)
        for name, sql_type in part.columns
    ]


def _fields(node: exp.Dot, inputs: Inputs) -> list[Item]:
    struct = infer(node.this, inputs)
    if struct.type.base is not BaseType.STRUCT:
        raise TypeMismatch(f"->* takes the fields of a STRUCT; {sql_of(node.this)} is {struct.type}").placed(
            *position_of(node)
        )
    found = []
    for name, _ in struct.type.fields:
        field = infer(exp.Dot(this=node.this.copy(), expression=identifier(name)), inputs)
        found.append(Item(Output(name, field.expression, field.type), node))
    return found


def changed(items: list[Item], node: exp.Expr, typed: Callable[[exp.Expr], Typed]) -> list[Item]:
    """Apply EXCEPT, REPLACE and RENAME to the columns of a star."""
    star = node.find(exp.Star)
    assert star is not None
    for left_out in star.args.get("except_") or ():
        place = _place_of(left_out, items)
        items = [item for number, item in enumerate(items) if number != place]
    for alias in star.args.get("replace") or ():
        place = _place_of(alias.args["alias"], items)
        found = typed(alias.this)
        items[place] = Item(Output(items[place].output.name, found.expression, found.type), alias)
    renamed = [(_place_of(each.this, items), each) for each in star.args.get("rename") or ()]
    for place, each in renamed:
        items[place] = Item(replace(items[place].output, name=each.alias), each)
    return items


def _place_of(node: exp.Expr, items: list[Item]) -> int:
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
        shown = " or ".join(sql_of(items[place].output.expression) for place in found)
        raise InvalidQuery(f"column '{node.name}' is ambiguous: {shown}", line=line, column=column)
    return found[0]


# Table functions in the SELECT list, which make several rows of one: EXPLODE, CUBE_EXPLODE.
#
# SELECT id, EXPLODE(tags) AS tag FROM s
#
#     expand  __e0 = s.tags        outputs  id = s.id, tag = __e0


class TableFunctions:
    """The table functions of one query, each an array. The items of several arrays share rows, side by side."""

    def __init__(self) -> None:
        self._found: dict[str, Output] = {}

    @property
    def found(self) -> tuple[Output, ...]:
        """The arrays, each under the name of its items' column."""
        return tuple(self._found.values())

    def read(self, node: exp.Expression, typed: Infer) -> Typed | None:
        """Elaborate a call to the column of its items; return None for any other node.

        Raises:
            TypeMismatch: as `items_of`.
        """
        if not isinstance(node, exp.Anonymous) or node.name not in TABLE_FUNCTIONS:
            return None
        items = items_of(node, typed)
        text = sql_of(items.expression)
        self._found.setdefault(text, Output(f"__e{len(self._found)}", items.expression, items.type.args[0]))
        return Typed(column(self._found[text].name), items.type.args[0])
