"""The language's own functions, as SHOW FUNCTIONS and DESCRIBE FUNCTION tell of them.

What a function takes is found by asking it with values of every type: there is no second list that could differ.

    DESCRIBE FUNCTION REPEAT      takes VARCHAR, INT; gives VARCHAR
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from sqlglot import exp

from strandline.jobs.functions.aggregates.registry import FUNCTIONS, canonical
from strandline.jobs.functions.registry import SCALARS
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.composed_aggregates import COMPOSED
from strandline.jobs.query.clauses.composed_aggregates import NAMES as COMPOSED_NAMES
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.other_dialects import DEFINED
from strandline.jobs.query.expressions.rewrites import CALLED
from strandline.jobs.query.expressions.scope import Scope
from strandline.jobs.serve.results import Document, TextTable, cell
from strandline.jobs.sql.trees import call

_TYPES: Final = (
    *(t.INT, t.BIGINT, t.DOUBLE, t.decimal(10, 2), t.VARCHAR, t.BYTES, t.BOOLEAN, t.DATE, t.TIME, t.TIMESTAMP),
    *(t.array(t.VARCHAR), t.array(t.INT), t.array(t.array(t.INT)), t.map_of(t.VARCHAR, t.INT)),
    t.struct(("a", t.INT), ("b", t.VARCHAR)),
)
_MOST_ARGUMENTS: Final = 3
_MOST_FORMS: Final = 12
"""Lines that a reader looks through; COALESCE takes every type."""
_COLUMNS: Final = tuple((f"c{number}", sql_type) for number, sql_type in enumerate(_TYPES))
_SCOPE: Final = Scope(Relation("every_type", _COLUMNS, "keyed", ("c0",)), ("every_type",))


@dataclass(frozen=True)
class Form:
    """A call: the types of its arguments, and of its value."""

    takes: tuple[SqlType, ...]
    gives: SqlType

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.takes)) or 'nothing'}; gives {self.gives}"


def kinds() -> Mapping[str, str]:
    """The kind of each function, by each of its names: `aggregate` or `scalar`."""
    scalars = dict.fromkeys((*SCALARS, *CALLED), "scalar")
    return scalars | {name.partition(" ")[0]: "aggregate" for name in (*FUNCTIONS, *COMPOSED_NAMES)}


def describe(name: str) -> Document | None:
    """What DESCRIBE FUNCTION says of one of these functions; None: there is none of that name."""
    kind = kinds().get(name) or kinds().get(canonical(name))
    if kind is None:
        return None
    forms = list(_forms(name, kind))
    data: dict[str, Any] = {"name": name, "kind": kind}
    if others := _other_names(name):
        data["other_names"] = others
    if means := [
        f"{head} is {body}" for head, body in {**DEFINED, **COMPOSED}.items() if head.partition("(")[0] == name
    ]:
        data["means"] = means
    data["forms"] = [{"takes": list(map(str, form.takes)), "gives": str(form.gives)} for form in forms]
    cells = [["kind", cell(f"{kind} function of the language")]]
    cells += [["other name", cell(other)] for other in others]
    cells += [["means", cell(each)] for each in means]
    cells += [["takes", cell(str(form))] for form in forms[:_MOST_FORMS]]
    if len(forms) > _MOST_FORMS:
        cells.append(["takes", cell(f"… and {len(forms) - _MOST_FORMS} more such combinations of types")])
    table = TextTable.fitting(("property", "value"), cells)
    text = "\n".join((name, table.header(), *(table.line(row) for row in cells), table.rule))
    return Document(data, text)


def _other_names(name: str) -> list[str]:
    scalar = SCALARS.get(name)
    if scalar is None:
        return [canonical(name)] if canonical(name) != name else []
    return [each for each in (scalar.name, *scalar.aliases) if each != name]


def _forms(name: str, kind: str) -> Iterator[Form]:
    """The calls that a function takes, of columns, without those whose arguments would be widened first."""
    if kind == "aggregate" and canonical(name) not in FUNCTIONS:
        return  # it takes its values in an order, which is no argument
    for number in range(_MOST_ARGUMENTS + 1):
        for columns in product(_COLUMNS, repeat=number):
            names, types = tuple(each for each, _ in columns), tuple(each for _, each in columns)
            try:
                if kind == "aggregate":
                    gives = FUNCTIONS[canonical(name)].bind(tuple(map(exp.column, names)), types).type
                elif name in SCALARS:
                    wanted, gives = SCALARS[name].signature(name, types)
                    if wanted != types:
                        continue
                else:
                    gives = infer(call(name, *map(exp.column, names)), _SCOPE).type
            except SqlError:
                continue
            yield Form(types, gives)
