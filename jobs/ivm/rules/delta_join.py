"""The body of a stage as SQL: its changes, and all its rows, as common table expressions for the rules.

The changes of a join are telescoping terms, one for each input that moved: inputs left of it are read as they are now,
inputs right of it as they were (DBSP; Materialize's delta join). A term takes the join from the state before that input
moved to the state after it, so terms are numbered (`__step`), and of the terms that hold a row the last one is right.

    visit ⋈ info, both changed
    step 0   delta_visit ⋈ old_info        (a row's weight is that of the change)
    step 1   new_visit   ⋈ delta_info

That holds where the join is linear in the input. Where it is not (the padded side of an outer join, the side of a semi
or anti join that only decides) the step retracts the rows as they were and inserts them as they are, restricted to
those that a change can have touched:

    visit ⟕ info, info changed
    step 1   −1  (new_visit ⋉ delta_info) ⟕ old_info        +1  (new_visit ⋉ delta_info) ⟕ new_info

An input's old version is Delta's `VERSION AS OF`: a join keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.named_once import NamedOnce, named_once
from strandline.jobs.ivm.rules.stored import STEP, columns, typed
from strandline.jobs.model.stage import JOIN_WORDS, Body, Core, Input, Output, Stage, body_of, inputs_of
from strandline.jobs.model.tables import ITEM, ITSELF
from strandline.jobs.sql.trees import Place, columns_in, conjuncts
from strandline.state_store.tablespec import WEIGHT


@dataclass(frozen=True)
class Term:
    """One SELECT of the changes: the side that each input is read from, the weight, and the input that restricts it.

    Attributes:
        itself: the relation that stands for a recursion's own rows.
        only: {alias: the semi join by which rows of that input are left out that nobody needs}.
    """

    sides: Mapping[str, Side]
    weight: str
    touched_by: str | None = None
    itself: str = ITSELF
    only: Mapping[str, str] = field(default_factory=dict)


def ctes(stage: Stage, engine: Engine, changed: Collection[str] | None, *, rows: Body = ()) -> list[str]:
    """`delta AS (…)`, and with `rows` also `body_new AS (…)`.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, where every row is a change.
        rows: the cores whose rows a rule reads.
    """
    texts = [f"delta AS (\n{changes(body_of(stage), engine, changed)}\n)"]
    if rows:
        texts.append(f"body_new AS (\n{all_rows(rows, engine)}\n)")
    return texts


def changes(body: Body, engine: Engine, changed: Collection[str] | None, *, itself: str = ITSELF) -> str:
    """The changes of a body: its columns, `__weight` and `__step`.

    Args:
        itself: the relation that stands for a recursion's own rows.
    """
    selects: list[str] = []
    step = 0
    for core in body:
        all_new = [Term(_all(core, "new"), "1")]
        found = all_new if changed is None else [replace(each, itself=itself) for each in terms(core, changed, engine)]
        if found:
            selects.append(_select(core, found, step, engine))
        step += len(found)
    if not selects:
        # Only frozen inputs moved: nothing changes, and the text must still say which columns there are.
        none = _select(body[0], [Term(_all(body[0], "new"), "1", itself=itself)], 0, engine)
        return f"  SELECT * FROM (\n{none}\n  ) AS __none WHERE FALSE"
    return "\n  UNION ALL\n".join(selects)


def all_rows(
    body: Body, engine: Engine, side: Literal["new", "old"] = "new", only: Sequence[Mapping[str, str]] = ()
) -> str:
    """All rows of a body: its columns.

    Args:
        only: of each core, as of `Term`.
    """
    left = only or [{} for _ in body]
    selects = [
        _select(core, [Term(_all(core, side), "", only=each)], None, engine)
        for core, each in zip(body, left, strict=True)
    ]
    return "\n  UNION ALL\n".join(selects)


def relations(stage: Stage, text: str, engine: Engine) -> Iterator[tuple[str, Side, Input]]:
    """The relations of a stage's inputs that a rule's text names: each name as the engine quotes it, side and input."""
    for each in inputs_of(stage):
        for side in get_args(Side):
            name = engine.name(f"{side}_{each.alias}")
            if name in text:
                yield name, side, each


def terms(core: Core, changed: Collection[str], engine: Engine) -> Iterator[Term]:
    """The terms of a core's changes, in the order of their steps."""
    for place, each in enumerate(core.inputs):
        if each.alias not in changed or each.frozen:
            continue
        if is_linear(core, place):
            weight = "1" if core.storage == "append" else f"{engine.name(each.alias)}.{WEIGHT}"
            yield Term(_sides(core, place, "delta"), weight)
        else:
            yield Term(_sides(core, place, "old"), "-1", touched_by=each.alias)
            yield Term(_sides(core, place, "new"), "1", touched_by=each.alias)


def _sides(core: Core, place: int, side: Side) -> dict[str, Side]:
    """The input at `place` from that side, those before it as they are now, those after it as they were; a frozen one
    is always as it is now."""
    return {
        each.alias: side if at == place else "old" if at > place and not each.frozen else "new"
        for at, each in enumerate(core.inputs)
    }


def _all(core: Core, side: Side) -> dict[str, Side]:
    return {each.alias: side for each in core.inputs}


def is_linear(core: Core, place: int) -> bool:
    """True if a change of that input is the same change of the join's rows, whatever the other rows are."""
    later_pads = any(each.join in PADDING for each in core.inputs[place + 1 :])
    return core.inputs[place].join in ("inner", "right") and not later_pads


def _select(core: Core, found: Sequence[Term], step: int | None, engine: Engine) -> str:
    """The rows of one or several terms, with their columns computed.

    An engine binds each expression as often as it stands in a text. So the terms of a join give the columns of its
    inputs that it reads, and its own expressions stand once above them.

    Args:
        step: the number of the first term; None: these are all rows, not changes.
    """
    if len(found) > 1 or named_in(core).layers:
        return _of_terms(join_of(core), found, step, engine)
    parts = [typed(column, engine) for column in core.columns] + _mark(found[0], step)
    source = from_text(_source(core, found[0]), engine) + _expand_text(core, engine)
    # `SELECT RANK() OVER ()` reads no column of its one row.
    return f"  SELECT\n    {columns(parts or ['1 AS __one'])}\n  {source}{where_text(core.where, engine)}"


def _of_terms(joined: Joined, found: Sequence[Term], first: int | None, engine: Engine) -> str:
    selects = []
    for at, term in enumerate(found):
        parts = [
            f"{engine.name(alias)}.{engine.name(name)} AS {engine.name(column)}"
            for (alias, name), column in joined.read.items()
        ]
        parts += _mark(term, None if first is None else first + at)
        source = from_text(_source(joined.core, term), engine)
        selects.append(f"    SELECT {', '.join(parts or ['1 AS __one'])}\n  {source}")
    rows = "\n    UNION ALL\n".join(selects)
    above = joined.above
    made = [typed(each, engine) for each in above.columns] + ([] if first is None else [WEIGHT, STEP])
    clauses = _expand_text(above, engine) + where_text(above.where, engine)
    source = joined.named.rows(f"(\n{rows}\n  ) AS __terms", engine)
    return f"  SELECT\n    {columns(made or ['1 AS __one'])}\n  FROM {source}{clauses}"


@dataclass(frozen=True)
class Joined:
    """A core in two: its joined rows, and what is computed of them.

    Attributes:
        read: {(alias, name): the column of the joined rows} of the inputs' columns that it reads.
        named: what is computed of the joined rows first.
        above: the core over these.
    """

    core: Core
    read: Mapping[Place, str]
    named: NamedOnce
    above: Core


def named_in(core: Core) -> NamedOnce:
    """What is computed of a core's joined rows first: of its columns, of what it expands, and of its condition."""
    return named_once(_trees(core), frozenset((ITEM, *(each.name for each in core.expand))))


def _trees(core: Core) -> list[exp.Expression]:
    trees = [each.expression for each in (*core.columns, *core.expand)]
    return trees + ([core.where] if core.where is not None else [])


def join_of(core: Core) -> Joined:
    """Cut a core in two."""
    number = {each.alias: place for place, each in enumerate(core.inputs)}
    # By the input's number: aliases may have dots in them.
    read = {
        (each.table, each.name): f"{number[each.table]}.{each.name}"
        for tree in _trees(core)
        for each in columns_in(tree)
        if each.table
    }
    named = named_in(core).over({place: exp.column(name, quoted=True) for place, name in read.items()})
    made = iter(named.trees)

    def over(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple(replace(each, expression=next(made)) for each in outputs)

    above = replace(core, columns=over(core.columns), expand=over(core.expand))
    return Joined(core, read, named, replace(above, where=next(made, None)))


def _mark(term: Term, step: int | None) -> list[str]:
    return [] if step is None else [f"CAST({term.weight} AS BIGINT) AS {WEIGHT}", f"{step} AS {STEP}"]


def _source(core: Core, term: Term) -> FromClause:
    return FromClause(core, term.sides, term.touched_by, term.itself, term.only)


# The FROM clause of a core: relations joined from left to right, each read from one side of the epoch.
#
# A term that is not linear in an input is restricted to the rows a change of that input can have touched:
#
# - the input decides or pads (left, semi, anti): rows left of it that meet the join's condition with a changed row;
# - the input, or one left of it, may be padded by a RIGHT or FULL join: rows of both sides whose join keys are those of
#   a changed row;
# - otherwise not at all: all rows are retracted and inserted again, which is correct and slow.

Side = Literal["delta", "old", "new"]

PADDING: Final = ("right", "full")
"""The joins that may put NULLs in the place of the rows left of them."""
_TOUCHED = "__touched"
_KEYS = "__keys"
# The FROM clause of constants, or where the first relation joins them: one row, which nobody reads.
_NOTHING = "FROM (SELECT 1 AS __one) AS __nothing"


@dataclass(frozen=True)
class FromClause:
    """The contents of a FROM clause.

    Attributes:
        sides: by alias, the relation that an input is read from.
        touched_by: alias of the input whose changes restrict the rows; None for no restriction.
        itself: the relation that stands for a recursion's own rows.
        only: as of `Term`.
    """

    core: Core
    sides: Mapping[str, Side]
    touched_by: str | None = None
    itself: str = ITSELF
    only: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Restriction:
    """The semi joins that restrict a term.

    Attributes:
        at: the place of the join before which the rows so far are restricted.
        prefix: the text of the semi join that does it.
        right: the semi join that restricts the joined relation itself; None: it is not.
    """

    at: int
    prefix: str
    right: str | None = None


def from_text(source: FromClause, engine: Engine) -> str:
    """The FROM clause, without what repeats rows for `expand`."""
    restriction = _restriction(source, engine)
    inputs = source.core.inputs
    lines = [] if inputs and inputs[0].joins_nothing else [_NOTHING]
    for place, each in enumerate(inputs):
        relation = _relation(source, each, engine)
        alias = engine.name(each.alias)
        if each.alias in source.only:
            relation = f"(SELECT {alias}.* FROM {relation} AS {alias} {source.only[each.alias]})"
        if restriction is not None and restriction.at == place:
            lines.append(restriction.prefix)
            if restriction.right is not None:
                relation = f"(SELECT {alias}.* FROM {relation} AS {alias} {restriction.right})"
        if place == 0 and each.joins_nothing:
            lines.append(f"FROM {relation} AS {alias}")
            continue
        on = _condition(source.core, each, engine)
        word = "CROSS JOIN" if on is None and each.join == "inner" else JOIN_WORDS[each.join]
        lines.append(f"{word} {relation} AS {alias}" + (f" ON {on}" if word != "CROSS JOIN" else ""))
    return "\n  ".join(lines)


def _expand_text(core: Core, engine: Engine) -> str:
    """What stands after the FROM clause and repeats rows for `expand`, or nothing."""
    if not core.expand:
        return ""
    return "\n  " + engine.expand([(each.name, lower(each.expression, engine.dialect)) for each in core.expand])


def where_text(condition: exp.Expression | None, engine: Engine) -> str:
    """The WHERE clause, or nothing."""
    return f"\n  WHERE {lower(condition, engine.dialect)}" if condition is not None else ""


def _relation(source: FromClause, each: Input, engine: Engine) -> str:
    if each.relation.name == ITSELF:
        return engine.name(source.itself)
    name = engine.name(f"{source.sides[each.alias]}_{each.alias}")
    if not each.as_of:
        return name
    keys = ", ".join(engine.name(key) for key in each.relation.key)
    until = f"LEAD(_stream_time) OVER (PARTITION BY {keys} ORDER BY _stream_time, _partition, _offset)"
    versions = f"SELECT *, {until} AS __until FROM {name}"
    return f"(SELECT * FROM ({versions}) AS __versions WHERE NOT _tombstone)"


def _condition(core: Core, each: Input, engine: Engine) -> str | None:
    on = lower(each.on, engine.dialect) if each.on is not None else None
    if not each.as_of:
        return on or ("TRUE" if each.join != "inner" else None)
    time = f"{engine.name(core.inputs[0].alias)}._timestamp"
    version = engine.name(each.alias)
    valid = f"{version}._stream_time <= {time} AND ({version}.__until IS NULL OR {time} < {version}.__until)"
    return f"({on}) AND {valid}" if on else valid


def _restriction(source: FromClause, engine: Engine) -> _Restriction | None:
    if source.touched_by is None:
        return None
    inputs = source.core.inputs
    place = next(at for at, each in enumerate(inputs) if each.alias == source.touched_by)
    each = inputs[place]
    padding = [at for at, later in enumerate(inputs) if at >= place and later.join in PADDING]
    padding = [at for at in padding if at > place or inputs[at].join == "full"]
    if not padding:
        if each.on is None:
            return None
        touching = _renamed(each.on, each.alias, _TOUCHED)
        changes = engine.name(f"delta_{each.alias}")
        text = f"SEMI JOIN {changes} AS {_TOUCHED} ON {lower(touching, engine.dialect)}"
        return _Restriction(place, text)
    if len(padding) > 1 or each.join in ("left", "semi", "anti"):
        return None
    return _by_keys(inputs, place, padding[0], engine)


def _by_keys(inputs: tuple[Input, ...], place: int, at: int, engine: Engine) -> _Restriction | None:
    """Both sides of the padding join restricted to the join keys of the changed rows."""
    changed, padding = inputs[place], inputs[at]
    pairs = equalities(padding.on, padding.alias) if padding.on is not None else []
    if place != at and at != 1:
        # Rows left of the join are made of several inputs: only those of the changed one can tell their keys.
        pairs = [(left, right) for left, right in pairs if _reads_only(left, changed.alias)]
    if not pairs:
        return None
    source = engine.name(f"delta_{changed.alias}")
    own = [(right if place == at else left) for left, right in pairs]
    names = [f"__j{number}" for number in range(len(pairs))]
    keys = ", ".join(f"{lower(e, engine.dialect)} AS {n}" for e, n in zip(own, names, strict=True))
    keyed = f"(SELECT DISTINCT {keys} FROM {source} AS {engine.name(changed.alias)}) AS {_KEYS}"

    def semi(sides: list[exp.Expression]) -> str:
        same = [
            f"{lower(e, engine.dialect)} IS NOT DISTINCT FROM {_KEYS}.{n}" for e, n in zip(sides, names, strict=True)
        ]
        return f"SEMI JOIN {keyed} ON {' AND '.join(same)}"

    return _Restriction(at, semi([left for left, _ in pairs]), semi([right for _, right in pairs]))


def equalities(on: exp.Expression, alias: str) -> list[tuple[exp.Expression, exp.Expression]]:
    """The equalities of a condition as (expression over earlier inputs, expression over `alias` alone)."""
    found = []
    for part in conjuncts(on):
        if not isinstance(part, exp.EQ):
            continue
        left, right = part.left, part.right
        assert isinstance(left, exp.Expression)
        assert isinstance(right, exp.Expression)
        for one, other in ((left, right), (right, left)):
            if _reads_only(other, alias) and _reads(one) and alias not in _reads(one):
                found.append((one, other))
                break
    return found


def _reads(expression: exp.Expression) -> set[str]:
    return {node.table for node in expression.find_all(exp.Column) if node.table}


def _reads_only(expression: exp.Expression, alias: str) -> bool:
    return _reads(expression) == {alias}


def _renamed(expression: exp.Expression, alias: str, name: str) -> exp.Expression:
    """The expression with the columns of `alias` read from `name`."""
    made = expression.copy()
    for node in list(made.find_all(exp.Column)):
        if node.table == alias:
            node.set("table", exp.to_identifier(name))
    return made
