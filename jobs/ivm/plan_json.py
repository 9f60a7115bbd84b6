"""A plan as JSON, and read back: what a process that compiled nothing needs to maintain a view.

    a value                as JSON                                      for example
    None, truth, numbers, text    the same                              "city"
    a tuple                ["", item, …]                                ["", "shop", "city"]
    a value of the model   [its class, field, …], usual ones at the end left out    ["Output", "c", tree, type]
    a type                 ["T", its text in SQL]                       ["T", "DECIMAL(10, 2)"]
    a relation             ["R", its place in `relations`]              ["R", 0]
    a tree                 ["E", node]
    a node                 [its class, {argument: …}, {what is noted}]  ["Column", {"this": ["Identifier", …]}]

An item of a tree is a node, a list `["", item, …]` or `["D", name]` of a data type's name. What is noted at a node goes
with it, since rules are written from it.

Relations stand once in a document, by their text: views that read one relation have one in memory.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from strandline.jobs.model import stage as model
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.stage import Plan
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import NULL, SqlType
from strandline.jobs.sql import dialect, time_clauses
from strandline.jobs.sql.from_text import parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = Any
"""What `json.loads` gives."""

CLASSES: Final[Mapping[str, type]] = {
    each.__name__: each
    for each in (
        Plan,
        model.MapStage,
        model.LatestStage,
        model.AggregateStage,
        model.AnalyticStage,
        model.RecursiveStage,
        model.Core,
        model.Input,
        model.Output,
        model.AggregateCall,
        model.AnalyticCall,
        model.AggregateOver,
        model.AggregateFramed,
        model.SessionWindow,
    )
}
_LAYOUTS: Final = {
    name: tuple((each.name, each.default) for each in fields(of))
    for name, of in {**CLASSES, "Relation": Relation}.items()
}
"""The fields of each class, with what they have where nothing is said."""
_OWN_NODES: Final = (
    dialect.NestedQuery,
    dialect.OuterValue,
    time_clauses.TimeWindowNode,
    time_clauses.WithinNode,
    time_clauses.IntervalNode,
)
"""Classes of nodes that sqlglot does not know."""
_TUPLE, _TYPE, _RELATION, _TREE, _DATA_TYPE = "", "T", "R", "E", "D"


def to_json(plan: Plan) -> Json:
    """A plan as JSON.

    Raises:
        TypeError: something in it has no place there.
    """
    relations: dict[str, int] = {}
    value = _plain(plan, relations)
    return {"relations": list(relations), "plan": value}


def from_json(document: Json) -> Plan:
    """What `to_json` made.

    Raises:
        ValueError, KeyError, TypeError, IndexError, AttributeError: it is not such a document.
    """
    relations = [_relation(text) for text in document["relations"]]
    plan = _value(document["plan"], relations)
    if not isinstance(plan, Plan):
        raise ValueError(f"a plan was expected, not {type(plan).__name__}")
    return plan


# From values to JSON.


def _plain(value: object, relations: dict[str, int]) -> Json:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, tuple):
        return [_TUPLE, *(_plain(each, relations) for each in value)]
    if isinstance(value, exp.Expr):
        return [_TREE, _plain_node(value, relations)]
    if isinstance(value, SqlType):
        return [_TYPE, _text(value)]
    if isinstance(value, Relation):
        text = json.dumps(_fields(value, relations))
        return [_RELATION, relations.setdefault(text, len(relations))]
    if CLASSES.get(type(value).__name__) is type(value):
        return [type(value).__name__, *_fields(value, relations)]
    raise TypeError(f"{type(value).__name__} has no place in a stored plan")


def _fields(value: Any, relations: dict[str, int]) -> list[Json]:
    """The values of all fields, but for those at the end that are as usual."""
    shown = [getattr(value, name) for name, _ in _LAYOUTS[type(value).__name__]]
    usual = [default for _, default in _LAYOUTS[type(value).__name__]]
    while shown and usual[-1] is not MISSING and shown[-1] == usual[-1] and type(shown[-1]) is type(usual[-1]):
        del shown[-1], usual[-1]
    return [_plain(each, relations) for each in shown]


def _plain_node(node: exp.Expr, relations: dict[str, int]) -> Json:
    said = node.type is None or node.type is node or node.type is node.args.get("to")  # of a type, and of a cast
    if node.comments or not said:
        raise TypeError("an expression with comments or types of sqlglot has no place in a stored plan")
    if _node_class(type(node).__name__) is not type(node):
        raise TypeError(f"the class {type(node).__name__} has no place in a stored expression")
    plain: list[Json] = [type(node).__name__, {name: _item(each, relations) for name, each in node.args.items()}]
    return [*plain, {name: _plain(each, relations) for name, each in node.meta.items()}] if node.meta else plain


def _item(value: object, relations: dict[str, int]) -> Json:
    if isinstance(value, exp.Expr):
        return _plain_node(value, relations)
    if isinstance(value, list):
        return [_TUPLE, *(_item(each, relations) for each in value)]
    if isinstance(value, exp.DType):
        return [_DATA_TYPE, value.name]
    if value is None or type(value) in (bool, int, str):
        return value
    raise TypeError(f"{type(value).__name__} has no place in a stored expression")


# From JSON to values.


def _value(plain: Json, relations: Sequence[Relation]) -> Any:
    if type(plain) is not list:
        return plain
    match plain[0]:
        case "":
            return tuple([_value(each, relations) for each in plain[1:]])
        case "E":
            return _node(plain[1], relations)
        case "T":
            return _type(plain[1])
        case "R":
            return relations[plain[1]]
        case name:
            return _made(name, [_value(each, relations) for each in plain[1:]])


def _made(name: str, values: list[Any]) -> Any:
    layout = _LAYOUTS[name]
    if len(values) > len(layout):
        raise ValueError(f"{name} has too many fields")
    return CLASSES[name](**{field: each for (field, _), each in zip(layout, values, strict=False)})


def _node(plain: Json, relations: Sequence[Relation]) -> exp.Expr:
    made = _node_class(plain[0])(**{name: _read_item(each, relations) for name, each in plain[1].items()})
    if len(plain) > 2:
        made.meta.update({name: _value(each, relations) for name, each in plain[2].items()})
    return made


def _read_item(plain: Json, relations: Sequence[Relation]) -> Any:
    if type(plain) is not list:
        return plain
    if plain[0] == _TUPLE:
        return [_read_item(each, relations) for each in plain[1:]]
    return exp.DType[plain[1]] if plain[0] == _DATA_TYPE else _node(plain, relations)


@cache
def _node_class(name: str) -> type[exp.Expr]:
    own = {each.__name__: each for each in _OWN_NODES}
    found = own.get(name) or getattr(exp, name, None)
    if not (isinstance(found, type) and issubclass(found, exp.Expr)):
        raise TypeError(f"{name} has no place in a stored expression")
    return found


@lru_cache(maxsize=4096)
def _relation(text: str) -> Relation:
    return Relation(*(_value(each, ()) for each in json.loads(text)))


@cache
def _type(text: str) -> SqlType:
    return NULL if text == NULL.base.value else parse_type(text)


@cache
def _text(sql_type: SqlType) -> str:
    """The text of a type, which must read back: that of a field with a backtick in its name does not."""
    text = str(sql_type)
    with suppress(SqlError):
        if _type(text) == sql_type:
            return text
    raise TypeError(f"the type {text} has no text that reads back")
