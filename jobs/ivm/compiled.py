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
"""

from __future__ import annotations

import json
import logging
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.ivm import plan_json
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import TICK, InsertQuery, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.state_store.errors import StoreError, StrandlineError
from strandline.state_store.files import make_folder, replace_unflushed
from strandline.state_store.paths import is_folder
from strandline.state_store.stored_state import MARK, PLACE, intact, sealed
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition, Function
    from strandline.jobs.model.stage import Plan
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

COMPILER: Final = 1
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
        plan = plan_json.from_json(document) if by == compiler() else None
        return StoredPlan(file, "whole", "", made_from, by, plan)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, SqlError) as error:
        return StoredPlan(file, "damaged", f"it does not read back: {error}")


def _store(plan: Plan, made_from: str, definition: Definition, file: LakePath) -> None:
    """Store a plan. A lake that this process may not write to is as good without it."""
    try:
        head = {"checksum": PLACE, "compiler": compiler(), "made_from": made_from}
        document = json.dumps({**head, **plan_json.to_json(plan)}, separators=(",", ":"))
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
        said = "compiled plans are made anew, that of '{}' first: they are of compiler {}, and this is {}"
        log.info(sentence(said, name, stored.compiler, compiler()))
    else:
        log.debug(sentence("the compiled plan of '{}' is of a former definition, and made anew", name))
