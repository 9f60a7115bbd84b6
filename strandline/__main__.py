"""`python -m strandline`: the command line, by the interpreter that is named."""

from __future__ import annotations

from strandline.jobs.cli.main import main

if __name__ == "__main__":
    main()
