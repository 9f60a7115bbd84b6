"""The process of a continuous run that Dagster starts: `python -m jobs.run.stream_child PIPELINE`.

It is the run of `strandline run PIPELINE --mode continuous`, with its log on standard error. It has no lifeline: it
outlives the process that started it, and whoever wants it finds it by its heartbeat. SIGTERM stops it.
"""

from __future__ import annotations

import logging
import sys

from jobs.model.settings import load_settings
from jobs.run.stop_signal import stopped_by_signal
from state_store.errors import StrandlineError

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(arguments: list[str]) -> int:
    """Follow the pipeline named by the only argument until SIGTERM.

    Returns:
        The exit code: 0 after a stop, `EXIT_FAILED` when the run failed (its heartbeat says why), `EXIT_USAGE` when
        called wrongly.
    """
    if len(arguments) != 1:
        print("usage: python -m jobs.run.stream_child PIPELINE", file=sys.stderr)
        return EXIT_USAGE
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    from jobs.run.pipeline import follow

    try:
        with stopped_by_signal() as stop:
            follow(load_settings(), arguments[0], stop)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
