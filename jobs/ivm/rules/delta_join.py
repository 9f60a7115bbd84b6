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

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.join_sides import From, Side, from_text, where_text
from strandline.jobs.ivm.rules.settled import STEP, columns, typed
from strandline.jobs.model.stage import Body, Core, Input, Stage, body_of, inputs_of
from strandline.state_store.tablespec import WEIGHT


@dataclass(frozen=True)
class _Term:
    """One SELECT of the changes: the side that each input is read from, the weight, and the input that restricts it."""

    sides: Mapping[str, Side]
    weight: str
    touched_by: str | None = None


def ctes(stage: Stage, engine: Engine, changed: Collection[str] | None, *, rows: bool) -> list[str]:
    """`delta AS (…)`, and with `rows` also `body_new AS (…)`.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, where every row is a change.
    """
    body = body_of(stage)
    texts = [f"delta AS (\n{changes(body, engine, changed)}\n)"]
    if rows:
        texts.append(f"body_new AS (\n{all_rows(body, engine)}\n)")
    return texts


def changes(body: Body, engine: Engine, changed: Collection[str] | None) -> str:
    """The changes of a body: its columns, `__weight` and `__step`."""
    selects: list[str] = []
    for core in body:
        if changed is None:
            selects.append(_select(core, _Term(_all(core, "new"), "1"), len(selects), engine))
            continue
        for term in _terms(core, changed, engine):
            selects.append(_select(core, term, len(selects), engine))
    if not selects:
        # Only frozen inputs moved: nothing changes, and the text must still say which columns there are.
        none = _select(body[0], _Term(_all(body[0], "new"), "1"), 0, engine)
        return f"  SELECT * FROM (\n{none}\n  ) AS __none WHERE FALSE"
    return "\n  UNION ALL\n".join(selects)


def all_rows(body: Body, engine: Engine, side: Literal["new", "old"] = "new") -> str:
    """All rows of a body: its columns."""
    selects = [_select(core, _Term(_all(core, side), ""), None, engine) for core in body]
    return "\n  UNION ALL\n".join(selects)


def relations(stage: Stage, text: str, engine: Engine) -> Iterator[tuple[str, Side, Input]]:
    """The relations of a stage's inputs that a rule's text names: each name as the engine quotes it, side and input."""
    for each in inputs_of(stage):
        for side in get_args(Side):
            name = engine.name(f"{side}_{each.alias}")
            if name in text:
                yield name, side, each


def _terms(core: Core, changed: Collection[str], engine: Engine) -> Iterator[_Term]:
    for place, each in enumerate(core.inputs):
        if each.alias not in changed or each.frozen:
            continue
        if _is_linear(core, place):
            weight = "1" if core.storage == "append" else f"{engine.name(each.alias)}.{WEIGHT}"
            yield _Term(_sides(core, place, "delta"), weight)
        else:
            yield _Term(_sides(core, place, "old"), "-1", touched_by=each.alias)
            yield _Term(_sides(core, place, "new"), "1", touched_by=each.alias)


def _sides(core: Core, place: int, side: Side) -> dict[str, Side]:
    """The input at `place` from that side, those before it as they are now, those after it as they were; a frozen one
    is always as it is now."""
    return {
        each.alias: side if at == place else "old" if at > place and not each.frozen else "new"
        for at, each in enumerate(core.inputs)
    }


def _all(core: Core, side: Side) -> dict[str, Side]:
    return {each.alias: side for each in core.inputs}


def _is_linear(core: Core, place: int) -> bool:
    """True if a change of that input is the same change of the join's rows, whatever the other rows are."""
    later_pads = any(each.join in ("right", "full") for each in core.inputs[place + 1 :])
    return core.inputs[place].join in ("inner", "right") and not later_pads


def _select(core: Core, term: _Term, step: int | None, engine: Engine) -> str:
    parts = [typed(column, engine) for column in core.columns]
    if step is not None:
        parts += [f"CAST({term.weight} AS BIGINT) AS {WEIGHT}", f"{step} AS {STEP}"]
    source = from_text(From(core, term.sides, term.touched_by), engine)
    # `SELECT RANK() OVER ()` reads no column of its one row.
    return f"  SELECT\n    {columns(parts or ['1 AS __one'])}\n  {source}{where_text(core.where, engine)}"
