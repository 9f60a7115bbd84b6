"""A driver to be killed: `python -m strandline.jobs.testing.child PIPELINE …` drains these pipelines."""

from __future__ import annotations

import sys

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain
from strandline.state_store.errors import StrandlineError


def main() -> int:
    """Drain the pipelines that the command line names; 0 when they are, 2 after an error that is on standard error."""
    settings = load_settings(engine="duckdb")
    try:
        for pipeline in sys.argv[1:]:
            drain(settings, pipeline, in_driver=True)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
