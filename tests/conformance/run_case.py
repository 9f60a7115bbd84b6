"""Running cases: which inputs go in together, and what the views hold after each epoch.

There are several ways to cut the inputs of a case into epochs. The state after all of them must not depend on it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from strandline.jobs.model.definitions import Source
from tests.conformance.cases import Case
from tests.conformance.compare import ComparedRelation, Expected, Unreadable
from tests.conformance.compared_relation import compared_relation
from tests.conformance.decode_inputs import InputDecoder
from tests.conformance.program import Program
from tests.conformance.verdicts import changelog_order, final_state

Row = dict[str, Any]
Batches = Sequence[Sequence[dict[str, Any]]]
Snapshots = list[dict[str, list[Row]]]
"""After each epoch: {stream or table: its rows}."""


class Engine(Protocol):
    """A place where the definitions of one case are maintained, fresh for each run."""

    def feed(self, log: str, rows: Sequence[Row]) -> None: ...

    def refresh(self) -> None: ...

    def rows(self, name: str) -> list[Row]: ...


@dataclass(frozen=True)
class PreparedCase:
    """A case ready to run: the records that must come out of each stream or table."""

    case: Case
    program: Program
    wanted: dict[str, tuple[ComparedRelation, list[Expected]]]

    @property
    def watched(self) -> list[str]:
        return list(self.wanted)


def prepared(case: Case, program: Program) -> PreparedCase:
    """Read the expected records. Without any, the last view must be empty.

    Raises:
        Unreadable: a view has other columns than ksqlDB's, or an output names no view.
    """
    wanted: dict[str, tuple[ComparedRelation, list[Expected]]] = {}
    for record in case.outputs:
        view = program.written_by(str(record["topic"]))
        if view is None:
            raise Unreadable(f"nothing writes the topic {record['topic']}")
        compared, records = wanted.setdefault(view.name, (compared_relation(view, program), []))
        records.append(compared.expected(record))
    if not case.outputs and program.views:
        last = program.views[-1]
        wanted[last.name] = (compared_relation(last, program), [])
    return PreparedCase(case, program, wanted)


def ways_to_cut(case: Case, mode: str, cuts: int, *, singly: bool = True) -> list[Batches]:
    """How the inputs go in: all at once and at random cuts (A), or record by record (B).

    Args:
        singly: in mode A, also record by record where that can show more: an epoch for each record is dear on Spark.
    """
    records = list(case.inputs)
    if mode == "B":
        return [[[record] for record in records]]
    # A case is cut the same way in every run.
    dice = random.Random(f"{case.file}/{case.name}")
    found: list[Batches] = [[records]]
    for _ in range(cuts if len(records) > 1 else 0):
        places = sorted(dice.sample(range(1, len(records)), min(len(records) - 1, dice.randint(1, 4))))
        found.append([records[a:b] for a, b in zip([0, *places], [*places, len(records)], strict=True)])
    if singly and re.search(r"\bCREATE\s+TABLE\b.*\bGROUP\s+BY\b", case.text, re.IGNORECASE | re.DOTALL):
        # Groups that lose their last row stay: that is only seen when it happens between two epochs.
        found.append([[record] for record in records])
    return found


def run_batches(engine: Engine, program: Program, batches: Batches, watched: Iterable[str]) -> Snapshots:
    """Feed the batches one after the other, and look after each refresh."""
    inputs = InputDecoder(program)
    seen: Snapshots = []
    for batch in batches or [[]]:
        for log, rows in inputs.rows(batch).items():
            engine.feed(log, rows)
        engine.refresh()
        seen.append({name: produced(program, name, engine.rows(name)) for name in watched})
    return seen


def produced(program: Program, name: str, rows: list[Row]) -> list[Row]:
    """The rows that queries wrote: of a stream that is also a source, not those that were fed."""
    if isinstance(program.catalog.find(name), Source):
        return [row for row in rows if row.get("_partition", 0) >= _FIRST_OF_QUERIES]
    return rows


# Below it are the partitions of topics: see `jobs.ivm.plan.plan`.
_FIRST_OF_QUERIES = 65_536


def verdict(ready: PreparedCase, mode: str, batches: Batches, seen: Snapshots) -> str | None:
    """The first difference, or None."""
    single = all(len(batch) <= 1 for batch in batches)
    for name, (compared, wanted) in ready.wanted.items():
        states = [each[name] for each in seen]
        if mode == "A":
            problem = final_state(compared, wanted, states[-1], one_by_one=single)
        else:
            problem = changelog_order(compared, wanted, states)
        if problem is not None:
            return problem
    return None


def run_case(ready: PreparedCase, mode: str, cuts: int, open_engine: Callable[[Program], Engine]) -> str | None:
    """Run one case in one mode, cut in every way; the first difference, or None.

    Raises:
        Exception: whatever the engine raises.
    """
    for number, batches in enumerate(ways_to_cut(ready.case, mode, cuts)):
        seen = run_batches(open_engine(ready.program), ready.program, batches, ready.watched)
        problem = verdict(ready, mode, batches, seen)
        if problem is not None:
            return problem if number == 0 else f"with cuts {[len(b) for b in batches]}: {problem}"
    return None
