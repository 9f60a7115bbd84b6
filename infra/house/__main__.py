"""`python -m infra.house [check]`: prints the house, and fails where it is not as planned.

check   only what is against the plan, one line each
"""

from __future__ import annotations

import argparse
import sys

from infra.house.breaches import breaches
from infra.house.graph import product_imports
from infra.house.measures import measured
from infra.house.report import report


def main() -> int:
    """Do what the command line asks; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.house", description="The house of the code.")
    parser.add_argument("action", nargs="?", choices=("show", "check"), default="show")
    action = parser.parse_args().action
    edges, files = product_imports(), measured()
    if action == "show":
        sys.stdout.write("\n".join([*report(edges, files), "", ""]))
    found = breaches(edges, files)
    for line in found:
        sys.stderr.write(f"house: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
