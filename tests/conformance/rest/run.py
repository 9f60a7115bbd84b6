"""Running one case: define, feed, ask over HTTP, compare.

A pull query is asked when all records are in. A push query is asked before the first, then every record is an epoch of
its own; where its limit counts rows that did not change it ends when the records do.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from httpx2 import Response

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.conformance.cases import Case
from tests.conformance.compare import Unreadable
from tests.conformance.on_duckdb import failed
from tests.conformance.program import Stopped, build
from tests.conformance.report import Outcome, Result
from tests.conformance.rest.answers import RestAnswer, pulled, pushed
from tests.conformance.rest.fed_server import FedServer, fed_server
from tests.support.waiting import wait_until

_EARLIEST = {"auto.offset.reset": "earliest"}


class Refused(Exception):
    """The server answered with an error."""


@dataclass(frozen=True)
class RestCase:
    """A case with its queries apart.

    Attributes:
        definitions: the case with the statements that define something.
        queries: each with the parts of the answer that ksqlDB gives; none where it refuses.
    """

    definitions: Case
    queries: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]

    @classmethod
    def of(cls, case: Case) -> RestCase:
        """A case of the files."""
        queries = [text for text in case.statements if is_query(text)]
        answers = [tuple(each["query"]) for each in case.responses if "query" in each]
        defined = tuple(text for text in case.statements if not is_query(text))
        pairs = zip(queries, answers or [()] * len(queries), strict=True)
        return cls(replace(case, statements=defined), tuple(pairs))


def is_query(statement: str) -> bool:
    """True for a SELECT that stands alone."""
    return re.match(r"\s*SELECT\b", statement, re.IGNORECASE) is not None


def is_push(statement: str) -> bool:
    """True for a query that goes on."""
    return re.search(r"\bEMIT\s+CHANGES\b", statement, re.IGNORECASE) is not None


def mode_of(case: Case) -> str:
    """What a case asks for."""
    return "push" if any(is_push(text) for text in case.statements) else "pull"


def run_case(case: Case, duckdb_engine: DuckDBEngine) -> Outcome:
    """The outcome of one case."""
    mode = mode_of(case)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        try:
            problem = next(_problems(RestCase.of(case), Path(folder), duckdb_engine), None)
        except (Refused, Stopped, Unreadable, StrandlineError, AssertionError) as error:
            if case.refused:
                return Outcome(case.file, case.name, case.kind, mode, "passed")
            return failed(case, mode, "run", error)
    if case.refused:
        problem = f"answered what ksqlDB refuses: {case.message}"
    result: Result = "passed" if problem is None else "failed"
    return Outcome(case.file, case.name, case.kind, mode, result, problem or "", "" if problem is None else "compare")


def _problems(rest: RestCase, folder: Path, duckdb_engine: DuckDBEngine) -> Iterator[str]:
    """The differences between the answers."""
    case = rest.definitions
    lake = LakeLayout(folder / "lake")
    program = build(case, Catalog(lake), lake)
    with fed_server(program, folder / "server", duckdb_engine) as fed:
        fed.feed([])
        if mode_of(replace(case, statements=tuple(text for text, _ in rest.queries))) == "pull":
            fed.feed(case.inputs)
        for text, parts in rest.queries:
            got = _pushed(fed, text, case) if is_push(text) else _answer(_ask(fed, text))
            wanted = RestAnswer.read(parts)
            limited = re.search(r"\bLIMIT\b", text, re.IGNORECASE) is not None
            problem = pushed(wanted, got) if is_push(text) else pulled(wanted, got, limited=limited)
            if problem is not None:
                yield f"{text}: {problem}"


def _pushed(fed: FedServer, text: str, case: Case) -> RestAnswer:
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(_ask, fed, text)
        wait_until(lambda: asked.done() or fed.server.hub.subscribers == 1, "nobody subscribed")
        for record in case.inputs:
            fed.feed([record])
        if not asked.done():
            _delivered(fed)
            fed.server.end_subscriptions()
        return _answer(asked.result())


def _delivered(fed: FedServer) -> None:
    """Wait until every feed has given what is committed."""
    wait_until(lambda: all(feed.at_head for feed in fed.server.hub.feeds()), "a feed stands still")


def _ask(fed: FedServer, text: str) -> Response:
    return fed.client.post("/query", json={"ksql": text, "streamsProperties": _EARLIEST})


def _answer(response: Response) -> RestAnswer:
    if response.status_code != 200:
        raise Refused(f"{response.status_code} {response.json().get('code')}: {response.json().get('message')}")
    return RestAnswer.read(json.loads(response.text, parse_float=Decimal))
