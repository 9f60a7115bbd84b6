"""The command `strandline` as a module: `python -m jobs.cli`."""

from jobs.cli.main import main

main()
