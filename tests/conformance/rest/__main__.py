"""Runs ksqlDB's cases for pull and push queries against the server.

    python -m tests.conformance.rest DIR [--case NAME] [--json OUT] [--write-doc FILE]

Ends as `tests.conformance.ksql` does. Cases that ask nothing (they insert, and read the topic) are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.conformance.cases import Case, read_cases
from tests.conformance.ksql import chosen
from tests.conformance.report import Outcome, by_mode, closing, write_json, write_rest_doc
from tests.conformance.rest.differences import skipped
from tests.conformance.rest.run import is_query, mode_of, run_case


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = _parser().parse_args(arguments)
    try:
        cases = [case for case in chosen(read_cases(options.place, "rest"), None, options.case) if _asks(case)]
    except FileNotFoundError as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 2
    outcomes = []
    for each in run(cases):
        outcomes.append(each)
        if each.outcome == "failed":
            print(f"FAILED {each.file}: {each.name} [{each.mode}] {each.reason}", flush=True)
    if options.json:
        write_json(outcomes, options.json)
    if options.write_doc:
        write_rest_doc(outcomes, options.write_doc, "python -m tests.conformance.rest DIR")
    print("\n".join([*by_mode(outcomes), "", *closing(outcomes)]))
    return 0


def run(cases: Sequence[Case]) -> Iterator[Outcome]:
    """The outcomes of the cases, one after the other."""
    with DuckDBEngine("500MB", 1) as duckdb_engine:
        for case in cases:
            reason = skipped(case)
            if reason is not None:
                yield Outcome(case.file, case.name, case.kind, mode_of(case), "skipped", reason)
            else:
                yield run_case(case, duckdb_engine)


def _asks(case: Case) -> bool:
    return any(is_query(text) for text in case.statements)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.rest", description=__doc__.splitlines()[0])
    parser.add_argument("place", type=Path, metavar="DIR", help="folder with rest/ in it, or of *.json files")
    parser.add_argument("--case", metavar="NAME", help="cases whose `file: name` holds this text")
    parser.add_argument("--json", type=Path, metavar="OUT", help="an object per case")
    parser.add_argument("--write-doc", type=Path, metavar="FILE", help="refresh the marked places of this document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
