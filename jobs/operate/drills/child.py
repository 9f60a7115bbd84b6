"""A driver to be killed: `python -m strandline.jobs.operate.drills.child VIEW` refreshes one view."""

from __future__ import annotations

import sys

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.drills.ground import refreshed
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout


def main() -> int:
    """Refresh the view that the command line names; 0 when it is at the heads of its inputs."""
    settings = load_settings()
    try:
        refreshed(settings, sys.argv[1], Catalog(LakeLayout(settings.lake)))
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
