"""The command `strandline` as a module: `python -m strandline.jobs.cli`."""

from strandline.jobs.cli.main import main

main()
