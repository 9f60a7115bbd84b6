"""The query expression around SELECTs: UNION, INTERSECT and EXCEPT of their rows, and WITH, which names some before.

SELECT a, b FROM s UNION ALL SELECT x, y FROM t

    names are those of the first branch; types the common ones, and each branch converts to them

SELECT a, b FROM s UNION ALL BY NAME SELECT b, c FROM t

    a, b, c: columns are matched by their names, and what a branch does not have is NULL

SELECT a, b FROM s UNION ALL CORRESPONDING [BY (b)] SELECT b, c FROM t

    b: the columns that all branches have

The common table expressions of WITH are read once each, and those of WITH RECURSIVE may read themselves:

    WITH RECURSIVE r (a, b) AS (SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a)

    seed     SELECT edges.a, edges.b FROM edges
    steps    SELECT r.a, e.b FROM __itself AS r JOIN edges AS e ON r.b = e.a

A step reads the rows of the round before, once, as one of the plain joins of its FROM: so each of its rows follows from
one row, and rows that are added never take one away. Whatever else would read itself is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from sqlglot import exp

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import ITSELF, LEVEL, Relation, alike, differ_only_in_case
from strandline.jobs.model.types import SqlType, without_null
from strandline.jobs.query.clauses.from_clause import Context, query_part, renamed
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical import Block, From, Query, Recursion, SetOperation, outputs_of, relations_of
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import identifier, told_apart

Operation = Literal["union all", "union", "intersect", "except", "intersect all", "except all"]
Columns = tuple[tuple[str, SqlType], ...]
_MATCHING = ("by_name", "kind", "on")
"""The arguments that say how the columns of the branches are matched."""
_WORDS: dict[type[exp.Expr], Operation] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def read_set_operation(tree: exp.SetOperation, context: Context) -> SetOperation:
    """Read a UNION, INTERSECT or EXCEPT; `a UNION ALL b UNION ALL c` has three branches.

    Raises:
        InvalidQuery: the branches differ in the number of columns.
        TypeMismatch: a column's types have nothing in common.
        NotSupported: BY NAME of anything but a UNION.
    """
    operation = _operation(tree)
    inner = replace(context.branches, outermost=context.outermost and operation == "union all")
    branches = [context.read(each, inner) for each in branches_of(tree, operation)]
    if tree.args.get("by_name"):
        branches = _by_name(branches, tree)
    columns = outputs_of(branches[0])
    for branch in branches[1:]:
        columns = common_columns(columns, outputs_of(branch), operation, tree)
    if not context.branch:
        columns = with_types(columns)
    return SetOperation(operation, tuple(converted(branch, columns) for branch in branches), columns)


def with_types(columns: Columns) -> Columns:
    """The columns, those that are NULL in every row as texts."""
    return tuple((name, without_null(of)) for name, of in columns)


def _operation(tree: exp.SetOperation) -> Operation:
    word = _WORDS[type(tree)]
    if tree.args.get("distinct") is not False:
        return word
    every: dict[Operation, Operation] = {"union": "union all", "intersect": "intersect all", "except": "except all"}
    return every[word]


def branches_of(tree: exp.SetOperation, operation: Operation) -> list[exp.Expr]:
    """The branches; nested ones of the same operation are flattened, those of EXCEPT only on the left."""
    right = [tree.expression] if operation.startswith("except") else _flattened(tree.expression, tree)
    return [*_flattened(tree.this, tree), *right]


def _flattened(side: exp.Expr, tree: exp.SetOperation) -> list[exp.Expr]:
    """The branches that one side of `tree` stands for; a side with clauses of its own is one branch."""
    while isinstance(side, exp.Subquery) and not side.alias:
        side = side.this
    own = any(side.args.get(clause) for clause in ("with_", "order", "limit", "offset"))
    if own or not isinstance(side, exp.SetOperation) or any(side.args.get(a) != tree.args.get(a) for a in _MATCHING):
        return [side]
    operation = _operation(side)
    return branches_of(side, operation) if operation == _operation(tree) else [side]


def _by_name(branches: list[Query], tree: exp.SetOperation) -> list[Query]:
    """The branches, each with all columns of all of them, in the order in which they are first met."""
    if not isinstance(tree, exp.Union):
        raise NotSupported(f"{tree.key.upper()} BY NAME is not supported yet").placed(*position_of(tree))
    named = (exp.Alias, exp.Column, exp.Dot, exp.Star)
    nameless = next((item for item in _items(tree) if not isinstance(item, named)), None)
    if nameless is not None:
        raise InvalidQuery(
            f"BY NAME matches columns by their names, and {sql_of(nameless)} has none", hint="give it one with AS"
        ).placed(*position_of(nameless))
    names = list(dict.fromkeys(name for branch in branches for name, _ in outputs_of(branch)))
    if tree.args.get("kind"):
        names = _corresponding(names, branches, tree)
    return [_with_columns(branch, names) for branch in branches]


def _items(side: exp.Expr) -> Iterator[exp.Expr]:
    """The items of the SELECT lists of the branches."""
    if isinstance(side, exp.SetOperation):
        yield from _items(side.this)
        yield from _items(side.expression)
    elif isinstance(side, exp.Subquery):
        yield from _items(side.this)
    else:
        yield from side.expressions


def _corresponding(names: list[str], branches: list[Query], tree: exp.SetOperation) -> list[str]:
    """The columns of CORRESPONDING: those that all branches have, or of them those after BY."""
    held = [{name for name, _ in outputs_of(branch)} for branch in branches]
    shared = [name for name in names if all(name in each for each in held)]
    wanted = [each.name for each in tree.args.get("on") or ()]
    line, place = position_of(tree)
    for name in wanted:
        if name not in shared:
            raise UnknownName.among("column of all branches", name, shared, line=line, column=place)
    if not shared:
        raise InvalidQuery("CORRESPONDING: the branches have no column in common", line=line, column=place)
    return wanted or shared


def _with_columns(branch: Query, names: list[str]) -> Query:
    if [name for name, _ in outputs_of(branch)] == names:
        return branch
    absent = {name: Output(name, exp.Null(), t.NULL) for name in names}
    if _is_combined(branch):
        held = {name: Output(name, column(name, "branch"), sql_type) for name, sql_type in outputs_of(branch)}
        return Block((From("branch", branch),), None, tuple({**absent, **held}[name] for name in names))
    assert isinstance(branch, Block)
    shown = {output.name: output for output in branch.outputs}
    return replace(branch, outputs=tuple({**absent, **shown}[name] for name in names))


def _is_combined(branch: Query) -> bool:
    """True if another output would change which rows there are, so that a block around it must add it."""
    return not isinstance(branch, Block) or branch.group is not None or bool(branch.analytic) or branch.distinct


def common_columns(left: Columns, right: Columns, operation: str, tree: exp.Expr) -> Columns:
    line, place = position_of(tree)
    if len(left) != len(right):
        raise InvalidQuery(
            f"one side of {operation.upper()} has {len(left)} columns, the other {len(right)}", line=line, column=place
        )
    found = []
    for (name, one), (_, other) in zip(left, right, strict=True):
        shared = t.common_type(one, other)
        if shared is None:
            raise TypeMismatch(
                f"column '{name}' is {one} on one side of {operation.upper()}, {other} on the other",
                line=line,
                column=place,
                hint="convert one with CAST(… AS …)",
            )
        found.append((name, shared))
    return tuple(found)


def converted(branch: Query, columns: Columns) -> Query:
    """A branch with exactly these names and types."""
    if outputs_of(branch) == columns:
        return branch
    if _is_combined(branch):
        return _around(branch, columns)
    assert isinstance(branch, Block)
    outputs = tuple(
        Output(name, widened(Typed(output.expression, output.type), sql_type).expression, sql_type)
        for output, (name, sql_type) in zip(branch.outputs, columns, strict=True)
    )
    renamed = {old.name: new.name for old, new in zip(branch.outputs, outputs, strict=True)}
    return replace(branch, outputs=outputs, key=tuple(renamed[name] for name in branch.key))


def _around(branch: Query, columns: Columns) -> Block:
    """A block around a branch that only renames and converts its columns."""
    outputs = tuple(
        Output(new, widened(Typed(column(old, "branch"), given), sql_type).expression, sql_type)
        for (old, given), (new, sql_type) in zip(outputs_of(branch), columns, strict=True)
    )
    return Block((From("branch", branch),), None, outputs)


LEVELS: Final = 1_000
"""The rounds after which a recursion is taken for endless, where it does not say how many it may take: MySQL's number.
Hierarchies have some ten; a series of whole numbers has as many as it has numbers."""
_MOST_LEVELS: Final = 1_000_000
"""More is a typing error: a round takes tens of microseconds at least."""
_TYPINGS: Final = 4
"""The seed's INT may become a step's BIGINT, and that a DECIMAL; a DECIMAL that grows with each round has no type."""


def read_with(tree: exp.Expr, context: Context) -> Context:
    """Read the common table expressions of a query, each once; return the context that holds them.

    Raises:
        InvalidQuery: two have one name; one reads itself and has no rows to begin with.
        NotSupported: one reads itself in another way than this module says, or one that comes after it.
    """
    clause = tree.args.get("with_")
    found: dict[str, Query] = {}
    ctes = clause.expressions if clause is not None else []
    for place, cte in enumerate(ctes):
        inner = replace(context.within(context.outer), queries={**context.queries, **found})
        taken = alike(cte.alias, found)
        if taken is not None:
            raise InvalidQuery(
                f"two queries of WITH are named '{cte.alias}'"
                if taken == cte.alias
                else differ_only_in_case("queries of WITH", taken, cte.alias)
            ).placed(*position_of(cte))
        if clause is not None and clause.args.get("recursive"):
            _check_before(cte, ctes[place + 1 :])
            if _reads(cte.this, cte.alias):
                found[cte.alias] = _recursion(cte, inner)
                continue
        if cte.args.get("levels") is not None:
            raise InvalidQuery(f"MAX RECURSION LEVEL: '{cte.alias}' does not read itself").placed(*position_of(cte))
        named = len(cte.args["alias"].args.get("columns") or ()) == len(cte.this.selects)
        query = context.read(told_apart(cte.this) if named else cte.this, inner)
        found[cte.alias] = renamed(query_part(cte.alias, cte.alias, query), cte, context) or query
    return replace(context, queries={**context.queries, **found})


def _check_before(cte: exp.Expr, later: Sequence[exp.Expr]) -> None:
    """Refuse a query that reads one after it: so do those that read each other."""
    for each in later:
        if _reads(cte.this, each.alias):
            raise NotSupported(
                f"'{cte.alias}' reads '{each.alias}', which comes after it: queries that read each other are not "
                "supported",
                hint="make them one query that reads itself, with a column that tells their rows apart",
            ).placed(*position_of(cte))


def _reads(tree: exp.Expr, name: str) -> list[exp.Table]:
    """The places where a query reads the relation of that name."""
    tables = tree.find_all(exp.Table)
    return [each for each in tables if isinstance(each.this, exp.Identifier) and each.name == name and not each.db]


def _recursion(cte: exp.Expr, context: Context) -> Recursion:
    name, tree = cte.alias, cte.this
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if context.frozen or context.semantics == "ksql":
        raise NotSupported(
            "WITH RECURSIVE is not supported in CREATE STREAM and TABLE, and with ksqlDB's semantics",
            hint="CREATE MATERIALIZED VIEW … AS WITH RECURSIVE …",
        ).placed(*position_of(cte))
    seeds, trees = _parts(name, tree, cte)
    context = replace(read_with(tree, context), outer=None)
    names = [each.name for each in cte.args["alias"].args.get("columns") or ()]
    seeds = [_under(each, names) for each in seeds]
    columns = _named(name, names, _columns_of([context.read(each, context.branches) for each in seeds], tree), cte)
    trees = [_under(each, [shown for shown, _ in columns]) for each in trees]
    columns, following = _typed(name, columns, trees, context, tree)
    read = [converted(context.read(each, context.branches), columns) for each in seeds]
    seed = read[0] if len(read) == 1 else SetOperation("union all", tuple(read), columns)
    distinct = tree.args.get("distinct") is not False
    steps = []
    for each, node in zip(following, trees, strict=True):
        step = converted(_step(name, each, node, distinct=distinct), columns)
        assert isinstance(step, Block), "its rows are not combined"
        steps.append(step)
    levels = _levels(cte)
    if levels is None and (not distinct or any(map(_computes, steps))):
        levels = LEVELS
    return Recursion(distinct, seed, tuple(steps), columns, levels)


def _parts(name: str, tree: exp.Expr, cte: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The branches that begin and those that follow.

    Raises:
        InvalidQuery: there is none to begin with.
        NotSupported: it reads itself elsewhere than once in the FROM of each of the latter.
    """
    form = f"WITH RECURSIVE {name} AS (SELECT … UNION SELECT … FROM {name} JOIN …)"
    if not isinstance(tree, exp.Union):
        raise InvalidQuery(f"'{name}' reads itself, and has no rows to begin with", hint=form).placed(*position_of(cte))
    for clause in ("order", "limit", "offset", "by_name", "kind", "on"):
        if tree.args.get(clause):
            word = clause.replace("_", " ").upper()
            raise NotSupported(
                f"{word} of the UNION by which '{name}' reads itself is not supported", hint="where it is read"
            ).placed(*position_of(cte))
    branches = branches_of(tree, "union" if tree.args.get("distinct") is not False else "union all")
    steps = [each for each in branches if _reads(each, name)]
    seeds = [each for each in branches if not _reads(each, name)]
    if not seeds:
        raise InvalidQuery(f"'{name}' reads itself, and has no rows to begin with", hint=form).placed(*position_of(cte))
    if len(_reads(tree, name)) > len(steps):
        raise NotSupported(
            f"'{name}' reads itself more than once in one SELECT: what follows from two of its rows at a time is not "
            "supported",
            hint=f"join the rows to begin with in the place of one: {form}",
        ).placed(*position_of(cte))
    for step in steps:
        (table,) = _reads(step, name)
        if not (isinstance(table.parent, exp.From | exp.Join) and table.parent.parent is step):
            raise NotSupported(
                f"'{name}' reads itself inside a query of its own, which cannot be computed row by row",
                hint=form,
            ).placed(*position_of(table))
    return seeds, steps


def _under(tree: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """A branch whose columns have the names of the recursion: nobody sees its own, which may be equal."""
    items = tree.expressions if isinstance(tree, exp.Select) else []
    later = (tree.args.get(clause) for clause in ("group", "having", "qualify", "order"))
    if len(items) != len(names) or any(later) or any(each.find(exp.Star) for each in items):
        return tree
    made = tree.copy()
    shown = [
        exp.Alias(this=item.unalias().copy(), alias=identifier(name)) for item, name in zip(items, names, strict=True)
    ]
    made.set("expressions", shown)
    return made


def _columns_of(queries: Sequence[Query], tree: exp.Expr) -> Columns:
    columns = outputs_of(queries[0])
    for each in queries[1:]:
        columns = common_columns(columns, outputs_of(each), "UNION", tree)
    return columns


def _named(name: str, names: Sequence[str], columns: Columns, cte: exp.Expr) -> Columns:
    """The columns with the names that stand behind the query's own."""
    if len(names) > len(columns):
        raise InvalidQuery(f"'{name}' has {len(columns)} columns, and {len(names)} names are given").placed(
            *position_of(cte)
        )
    made = tuple((new, of) for new, (_, of) in zip(names, columns, strict=False)) + columns[len(names) :]
    shown = [each for each, _ in made]
    twice = next((each for each in shown if shown.count(each) > 1), None)
    if twice is not None:
        raise InvalidQuery(f"'{name}' has two columns named '{twice}'", hint=f"{name} (a, b, …) AS (…)").placed(
            *position_of(cte)
        )
    return made


def _typed(
    name: str, columns: Columns, trees: Sequence[exp.Expr], context: Context, tree: exp.Expr
) -> tuple[Columns, list[Query]]:
    """The columns with types that hold the rows of every round, and the steps over such rows.

    Raises:
        TypeMismatch: there are none.
    """
    for _ in range(_TYPINGS):
        itself = Relation(ITSELF, columns, "keyed", tuple(each for each, _ in columns), ((LEVEL, t.INT),))
        queries = {each: query for each, query in context.queries.items() if each != name}
        inner = replace(context.branches, queries=queries, beside={**context.beside, name: itself})
        steps = [context.read(each, inner) for each in trees]
        wider = columns
        for each in steps:
            wider = common_columns(wider, outputs_of(each), "UNION", tree)
        if wider == columns == with_types(columns):
            break
        wider = with_types(wider) if wider == columns else wider
        columns = wider
    else:
        raise TypeMismatch(
            f"the columns of '{name}' are wider with each round", hint="CAST(… AS …) in what follows from it"
        ).placed(*position_of(tree))
    maps = next((f"column '{each}' is {of}" for each, of in columns if has_map(of)), None)
    if maps is not None:
        raise NotSupported(f"'{name}' reads itself, and {maps}: rows are compared there").placed(*position_of(tree))
    return columns, steps


def _step(name: str, step: Query, tree: exp.Expr, *, distinct: bool) -> Block:
    """A step of which each row follows from one row.

    Raises:
        NotSupported: it groups, orders or numbers rows, or pads them.
    """
    place = position_of(tree)
    if not isinstance(step, Block):
        raise NotSupported(f"what follows from the rows of '{name}' is one SELECT each").placed(*place)
    if step.distinct and distinct:
        step = replace(step, distinct=False)
    if step.group is not None or step.analytic or step.distinct:
        what = (
            "GROUP BY or an aggregate" if step.group is not None else "DISTINCT" if step.distinct else "OVER or LIMIT"
        )
        raise NotSupported(
            f"{what} over the rows of '{name}' inside of it is not supported: it would need all of them",
            hint=f"in the query that reads '{name}'",
        ).placed(*place)
    at = next((at for at, each in enumerate(step.inputs) if _is_itself(each)), None)
    if at is None:
        raise NotSupported(f"'{name}' reads itself inside a query of its own").placed(*place)
    if any(_reads_itself(each) for each in step.inputs):
        raise NotSupported(
            f"LATERAL, or a subquery computed for each value, over the rows of '{name}' inside of it is not supported",
            hint=f"join the table that it reads with '{name}'",
        ).placed(*place)
    padded = (at > 0 and step.inputs[at].join != "inner") or any(
        each.join in ("right", "full") for each in step.inputs[at + 1 :]
    )
    if padded:
        raise NotSupported(
            f"an outer join that pads the rows of '{name}' inside of it is not supported", hint=f"FROM {name} LEFT JOIN"
        ).placed(*place)
    return step


def _reads_itself(part: From) -> bool:
    """True for a query whose own inputs are the rows of one round."""
    source = part.source
    return not isinstance(source, Relation) and any(each.name == ITSELF for each in relations_of(source))


def _is_itself(part: From) -> bool:
    return isinstance(part.source, Relation) and part.source.name == ITSELF


def _computes(step: Block) -> bool:
    """True if a step may make values that were not there before, so that a set need not end by itself."""
    return not all(_is_taken(each.expression) for each in step.outputs)


def _is_taken(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Literal | exp.Boolean | exp.Null)


def _levels(cte: exp.Expr) -> int | None:
    """The number of MAX RECURSION LEVEL; None where it is not given."""
    node = cte.args.get("levels")
    if node is None:
        return None
    if not (isinstance(node, exp.Literal) and node.is_int and 0 < int(node.name) <= _MOST_LEVELS):
        raise InvalidQuery(f"MAX RECURSION LEVEL is a number from 1 to {_MOST_LEVELS:,}, not {sql_of(node)}").placed(
            *position_of(cte)
        )
    return int(node.name)
