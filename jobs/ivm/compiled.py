"""The compiled plan of a definition: made once, stored in the lake, and loaded by every process that maintains it.

    <lake>/compiled/<name>.json    {"checksum": …, "compiler": c, "made_from": d, "relations": […], "plan": …}

    definition ─┬─ the file is made from it, by this compiler ──> the stored plan
                └─ otherwise ──> parsed, bound and planned anew; stored by CREATE, and by the next run

A file is never wrong to lose: what it says it was made from is compared each time with the definition, the definitions
of what it reads as it reads them, the functions that its text may call, and the lake's clock. So nobody who changes a
definition has to think of it, no lock is needed to write it, and it is not flushed: half a file fails its checksum, and
is made anew. An older Strandline does not look into the folder.

Another release of Strandline or of sqlglot is another compiler, and so is another `COMPILER`: the plans of a corpus
stand in `tests/golden`, and where a change of the front end, the planner or this form changes one of them, that test
asks for the next number.

On an object store nothing is stored: there a GET takes longer than a plan.

The plan is JSON, which a process that compiled nothing reads to maintain a view:

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
import logging
import weakref
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlglot import exp

from strandline.jobs.model import stage as model
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import TICK, InsertQuery, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.stage import Plan
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import NULL, SqlType
from strandline.jobs.sql import dialect, time_clauses
from strandline.jobs.sql.from_text import parse_type
from strandline.state_store.errors import StoreError, StrandlineError
from strandline.state_store.files import make_folder, replace_unflushed
from strandline.state_store.paths import is_folder
from strandline.state_store.stored_state import MARK, PLACE, intact, sealed
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition, Function
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


COMPILER: Final = 6
"""Raised with each change after which the plan of some definition, or its form in a file, is another one."""

log = logging.getLogger("strandline")

_MOST: Final = 4096
_KNOWN: Final[dict[str, Plan]] = {}
"""The plans of this process, by what they were made from; the oldest go. Whoever asks again gets the same stages."""
_STORED: Final[dict[LakePath, str]] = {}
"""What the plan in a file is made from, as far as this process has read or written it."""


def compiled(definition: View | InsertQuery | Source, catalog: Catalog) -> Plan:
    """The stages of a view, a query that inserts into a stream, or a keyed source: the stored ones, or compiled anew.

    Nothing is written.

    Raises:
        ValueError: a source stream, whose event log is written by ingest alone.
        SqlError: an input has changed so that the query no longer fits.
        CorruptState: the file of a definition that it needs is broken.
    """
    return _compiled(definition, what_it_is_made_from(definition, catalog), catalog)


def keep_compiled(definitions: Iterable[Definition], catalog: Catalog) -> None:
    """Store the plans of those definitions that have one and stand in the catalog, unless they are stored.

    For whoever has just put them there, and for a run, which holds their pipeline. What cannot be compiled, whoever
    needs it says.
    """
    for each in definitions if stores_plans(catalog.lake) else ():
        streams = isinstance(each, Source) and each.kind == "stream"
        if not streams and not (isinstance(each, View) and each.partial) and catalog.holds(each):
            with suppress(StrandlineError):
                _keep(each, catalog)


def _compiled(definition: Definition, made_from: str, catalog: Catalog) -> Plan:
    known = _KNOWN.get(made_from)
    if known is not None:
        return known
    stored = read_stored(definition.name, catalog.lake)
    plan = stored.plan if stored.made_from == made_from else None
    if plan is None:
        from strandline.jobs.ivm.plan.plan import plan as compile_anew  # the front end: most processes need none of it

        plan = compile_anew(definition, catalog)
        _say_once(definition, stored)
    else:
        _STORED[stored.file] = made_from
    kept = _KNOWN.setdefault(made_from, plan)
    for oldest in [*_KNOWN][:-_MOST]:
        _KNOWN.pop(oldest, None)
    return kept


def _keep(definition: Definition, catalog: Catalog) -> None:
    made_from, file = what_it_is_made_from(definition, catalog), catalog.lake.compiled(definition.name)
    plan = _compiled(definition, made_from, catalog)
    if _STORED.get(file) != made_from or not file.exists():
        _STORED[file] = made_from
        _store(plan, made_from, definition, file)


def compiler() -> str:
    """What compiles here: another one may make another plan of the same definition."""
    return _compiler(COMPILER)


@cache
def _compiler(number: int) -> str:
    return f"{number}, Strandline {version('strandline')}, sqlglot {version('sqlglot')}"


# What a plan is made from, as one digest.


def what_it_is_made_from(definition: Definition, catalog: Catalog) -> str:
    """The digest of all that the plan of a definition depends on, the compiler included.

    Raises:
        CorruptState: the file of a definition that it needs is broken.
    """
    return sha256("\n".join([compiler(), *_made_from(definition, catalog)]).encode()).hexdigest()


def _made_from(definition: Definition, catalog: Catalog) -> Iterator[str]:
    yield _text_of(definition)
    if isinstance(definition, Source):
        return
    if isinstance(definition, InsertQuery):
        yield _text_of(catalog.get(definition.target))
    seen = catalog.as_seen_by(definition)
    for name in sorted({*definition.inputs, *map(tables.definition_of, definition.inputs)}):
        found = seen.find(name)
        if found is not None:
            yield _text_of(found)
            yield str(all(each.identified for each in catalog.insert_queries(name)))
    query = definition.query.upper()
    yield from (_text_of(each) for name, each in catalog.functions.items() if name in query)
    # NOW() is the clock's time; one that is dropped, and another, are no input of the definition's.
    yield from (_text_of(each) for each in catalog.definitions() if isinstance(each, Source) and TICK in each.options)


_TEXTS: Final[dict[int, tuple[weakref.ref[Definition | Function], str]]] = {}
"""What a definition says, by the object: a source of many columns is read by many views."""


def _text_of(definition: Definition | Function) -> str:
    known = _TEXTS.get(id(definition))
    if known is not None and known[0]() is definition:
        return known[1]
    key = id(definition)
    made = sha256(repr(definition).encode()).hexdigest()
    _TEXTS[key] = (weakref.ref(definition, lambda _: _TEXTS.pop(key, None)), made)
    return made


# The file of a plan.


@dataclass(frozen=True)
class StoredPlan:
    """What is found of a compiled plan in a lake.

    Attributes:
        state: `none` where there is no file, `damaged` where it does not read back.
        why: of a damaged one.
        made_from: the digest that it says.
        plan: None where another compiler made it.
    """

    file: LakePath
    state: Literal["whole", "damaged", "none"]
    why: str = ""
    made_from: str = ""
    compiler: str = ""
    plan: Plan | None = None


def stores_plans(lake: LakeLayout) -> bool:
    """True if compiled plans are stored in a lake: on a disk."""
    return isinstance(lake.root, Path)


def read_stored(name: str, lake: LakeLayout) -> StoredPlan:
    """The compiled plan of a definition's name as it lies in the lake."""
    file = lake.compiled(name)
    if not isinstance(file, Path):
        return StoredPlan(file, "none")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return StoredPlan(file, "none")
    except OSError as error:
        return StoredPlan(file, "damaged", f"it cannot be read: {error}")
    if not intact(data, MARK):
        return StoredPlan(file, "damaged", "it fails its checksum")
    try:
        document = json.loads(data)
        made_from, by = document["made_from"], document["compiler"]
        plan = plan_from_json(document) if by == compiler() else None
        return StoredPlan(file, "whole", "", made_from, by, plan)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, SqlError) as error:
        return StoredPlan(file, "damaged", f"it does not read back: {error}")


def _store(plan: Plan, made_from: str, definition: Definition, file: LakePath) -> None:
    """Store a plan. A lake that this process may not write to is as good without it."""
    try:
        head = {"checksum": PLACE, "compiler": compiler(), "made_from": made_from}
        document = json.dumps({**head, **plan_to_json(plan)}, separators=(",", ":"))
        if not is_folder(file.parent):  # making it flushes, also where it is there
            make_folder(file.parent)
        replace_unflushed(file, sealed(document.encode(), MARK))
    except (TypeError, RecursionError) as error:
        log.info(sentence("the plan of '{}' is not stored: {}", Name(definition.name), error))
    except (StoreError, OSError) as error:
        log.debug("the plan of '%s' could not be stored: %s", definition.name, error)


_SAID: Final[set[tuple[LakePath, str]]] = set()


def _say_once(definition: Definition, stored: StoredPlan) -> None:
    """Log why a plan that is stored is not used: once of each reason, for a lake has hundreds."""
    if stored.state == "none":
        return
    other = stored.compiler != compiler()
    reason = "damaged" if stored.state == "damaged" else "compiler" if other else "definition"
    if (stored.file.parent, reason) in _SAID:
        return
    _SAID.add((stored.file.parent, reason))
    name = Name(definition.name)
    if reason == "damaged":
        log.warning(sentence("the compiled plan of '{}' is made anew: {}", name, stored.why))
    elif reason == "compiler":
        by, now = stored.compiler, compiler()
        log.info(sentence("compiled plans are made anew, '{}' first: of compiler {}, and this is {}", name, by, now))
    else:
        log.debug(sentence("the compiled plan of '{}' is of a former definition, and made anew", name))


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


def plan_to_json(plan: Plan) -> Json:
    """A plan as JSON.

    Raises:
        TypeError: something in it has no place there.
    """
    relations: dict[str, int] = {}
    value = _plain(plan, relations)
    return {"relations": list(relations), "plan": value}


def plan_from_json(document: Json) -> Plan:
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
