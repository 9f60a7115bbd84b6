"""Runs the SQL of other projects' suites against the engine, as it stands in their files.

    python -m tests.outside.sqllogic DIR [--suite duckdb,risingwave] [--only PART] [--jobs N] [--write-doc FILE] …

Ends with a table per suite. The exit status is 1 when an answer is wrong, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.outside.sqllogic.report import closing, reasons, table, write_doc
from tests.outside.sqllogic.run import SECONDS, run
from tests.outside.sqllogic.suites import PLACE, SUITES


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = _parser().parse_args(arguments)
    chosen = [SUITES[name] for name in options.suite.split(",")]
    files = [
        (suite, file)
        for suite in chosen
        for file in suite.files(options.place)
        if options.only in str(file.relative_to(options.place))
    ][options.begin :: options.every]
    if not files:
        print(f"cannot run: no file of {options.suite} below {options.place}; {__file__} says more", file=sys.stderr)
        return 2
    outcomes = []
    if options.json:
        options.json.write_text("", encoding="utf-8")
    for outcome in run(files, options.place, options.seed, options.jobs, options.seconds):
        outcomes.append(outcome)
        if options.json:
            with options.json.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(outcome)) + "\n")
        if outcome.result in options.show.split(","):
            print(outcome, flush=True)
    print("\n".join([*table(outcomes), "", *reasons(outcomes), "", closing(outcomes)]))
    if options.write_doc:
        write_doc(
            outcomes,
            options.write_doc,
            f"python -m tests.outside.sqllogic DIR --every {options.every} --from {options.begin}",
        )
    return int(any(each.result == "wrong" for each in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.sqllogic")
    parser.add_argument("place", type=Path, nargs="?", default=PLACE, help="the folder of the checkouts")
    parser.add_argument("--suite", default=",".join(SUITES), help="some of " + ", ".join(SUITES))
    parser.add_argument("--only", default="", help="files whose path holds a text")
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="the first of them, from 0")
    parser.add_argument("--seed", type=int, default=0, help="of the histories")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="a file takes at most")
    parser.add_argument("--show", default="wrong", help="results to print, by commas")
    parser.add_argument("--json", type=Path, help="write every outcome there, one a line")
    parser.add_argument("--write-doc", type=Path, help="put the table into this page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
