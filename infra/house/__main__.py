"""`python -m infra.house [check | write]`: prints the house, and fails where it is not as planned.

check   only what is against the plan, one line each
write   the lint rules of the rooms and the generated parts of docs/architecture.md
"""

from __future__ import annotations

import argparse
import sys

from infra.house.breaches import breaches
from infra.house.graph import product_imports
from infra.house.measures import measured
from infra.house.report import report
from infra.house.written import stale, write


def main() -> int:
    """Do what the command line asks; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.house", description="The house of the code.")
    parser.add_argument("action", nargs="?", choices=("show", "check", "write"), default="show")
    action = parser.parse_args().action
    if action == "write":
        for path in write():
            sys.stdout.write(f"written: {path}\n")
        return 0
    edges, files = product_imports(), measured()
    if action == "show":
        sys.stdout.write("\n".join([*report(edges, files), "", ""]))
    found = [*breaches(edges, files), *stale()]
    for line in found:
        sys.stderr.write(f"house: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
