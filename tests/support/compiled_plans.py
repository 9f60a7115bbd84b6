"""Plans of a fixed corpus of definitions, and what they are compared by.

    python -m tests.support.compiled_plans check      fails when a plan is another one than the file says
    python -m tests.support.compiled_plans write      the file anew: of another `COMPILER` alone

`tests/golden/compiled/corpus.json` has statements: those that a view is over, and its own. It was drawn from the
project's tests and pipelines, so that each kind of stage, call, node and option is in it. `plans.json` has the digest
of each plan as it is stored in a lake.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any, Final

from sqlglot import exp

from infra.house.plan import ROOT
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.binding import stages_of
from strandline.jobs.ivm.compiled import COMPILER
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import Definition
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.stage import Plan
from strandline.jobs.session.define.analyze import define
from strandline.jobs.sql.statements import CreateSource, CreateView, InsertSelect, parse
from tests.support.bound_texts import PIPELINES
from tests.support.memory_catalog import MemoryCatalog

FOLDER: Final = ROOT / "tests" / "golden" / "compiled"
_DIGITS: Final = 12
_SHOWN: Final = 60
"""Characters of a statement by which people find it."""
_BLOCK: Final = re.compile(r"```sql\n(.*?)```", re.DOTALL)


def corpus() -> Iterator[tuple[str, Definition, Catalog]]:
    """The definitions of the corpus, each with what it is called and its catalog."""
    document = json.loads((FOLDER / "corpus.json").read_text())
    for number, view in enumerate(document["views"]):
        text = ";\n".join([*(document["over"][each] for each in view["over"]), view["sql"]])
        *_, (definition, catalog) = _defined(text)
        yield f"{number}: {view['sql'][:_SHOWN]}", definition, catalog
    for path in PIPELINES:
        for definition, catalog in _defined(path.read_text()):
            yield f"{path.stem}: {definition.sql[:_SHOWN]}", definition, catalog


def of_docs() -> Iterator[tuple[Definition, Catalog]]:
    """The definitions in the pages for users, as far as each page's statements say all that they need."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        catalog = MemoryCatalog()
        for block in _BLOCK.findall(page.read_text()):
            try:
                for definition, _ in _defined(block, catalog):
                    yield definition, catalog
            except SqlError:
                continue  # a part of a statement, or one that is shown because it is refused


def planned(definition: Definition, catalog: Catalog) -> Plan | None:
    """The plan of a definition; None where it has none."""
    return plan(definition, catalog) if stages_of(definition, catalog) else None


def digests() -> dict[str, str]:
    """{definition: digest of its plan as it is stored}."""
    found: dict[str, str] = {}
    for text, definition, catalog in corpus():
        made = planned(definition, catalog)
        if made is not None:
            stored = json.dumps(compiled.plan_to_json(made), separators=(",", ":"))
            found[text] = sha256(stored.encode()).hexdigest()[:_DIGITS]
    return found


def faults() -> list[str]:
    """What is wrong: the plans that are others than the file of them says, and what to do."""
    known = json.loads((FOLDER / "plans.json").read_text())
    now = digests()
    if known["plans"] == now and known["compiler"] == COMPILER:
        return []
    others = [text for text in now.keys() | known["plans"].keys() if now.get(text) != known["plans"].get(text)]
    if known["compiler"] == COMPILER:
        what = "raise COMPILER in jobs/ivm/compiled.py, so that no lake goes on with the former plans, and rewrite:"
    else:
        what = "COMPILER was raised: rewrite"
    return [f"{len(others)} plans of {len(now)} are others than before", what, _REWRITE, *sorted(others)[:20]]


_REWRITE: Final = "python -m tests.support.compiled_plans write"


def write() -> None:
    """Write the digests anew.

    Raises:
        SystemExit: plans have changed, and `COMPILER` has not.
    """
    file = FOLDER / "plans.json"
    now = digests()
    if file.exists():
        known = json.loads(file.read_text())
        changed = any(now[text] != digest for text, digest in known["plans"].items() if text in now)
        if changed and known["compiler"] == COMPILER:
            raise SystemExit("plans have changed: raise COMPILER in jobs/ivm/compiled.py first")
    file.write_text(json.dumps({"compiler": COMPILER, "plans": now}, indent=1, ensure_ascii=False) + "\n")


def unlike(left: Any, right: Any, place: str = "") -> str | None:
    """Where two plans differ, in any class, field, argument of a node or note at it; None: nowhere."""
    if type(left) is not type(right):
        return f"{place}: {type(left).__name__}, {type(right).__name__}"
    if isinstance(left, exp.Expr):
        return unlike(left.args, right.args, f"{place}.{type(left).__name__}") or unlike(left.meta, right.meta, place)
    if is_dataclass(left):
        names = [each.name for each in fields(left)]
        return _first(unlike(getattr(left, name), getattr(right, name), f"{place}.{name}") for name in names)
    if isinstance(left, dict):
        if list(left) != list(right):
            return f"{place}: {list(left)}, {list(right)}"
        return _first(unlike(left[name], right[name], f"{place}.{name}") for name in left)
    if isinstance(left, tuple | list):
        if len(left) != len(right):
            return f"{place}: {len(left)} items, {len(right)}"
        pairs = enumerate(zip(left, right, strict=True))
        return _first(unlike(one, other, f"{place}[{number}]") for number, (one, other) in pairs)
    return None if left == right else f"{place}: {left!r}, {right!r}"


def _first(found: Iterator[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)


def _defined(text: str, catalog: Catalog | None = None) -> Iterator[tuple[Definition, Catalog]]:
    catalog = MemoryCatalog() if catalog is None else catalog
    for statement in parse(text):
        if isinstance(statement, CreateSource | CreateView | InsertSelect):
            definition = define(statement, catalog, "tests")
            if catalog.find(definition.name) is None:
                catalog.add(definition)
                yield definition, catalog


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    elif wrong := faults():
        raise SystemExit("\n".join(wrong))
