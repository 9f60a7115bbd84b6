"""Processes of their own that begin in milliseconds: forked from a server that has imported everything already.

They are real processes, to be killed; only their imports are spared. The server does nothing else, so there is nothing
of it that a fork could cut in two.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

from tests.support.waiting import PATIENCE_SECONDS

_WRITERS = "tests.support.two_tables"


def warm_processes() -> ForkServerContext:
    """The context of such processes. What a process runs is a function of a module, with arguments that can be sent."""
    context = multiprocessing.get_context("forkserver")
    # What is imported before the first process starts; `pytest` since a child imports the main module again.
    context.set_forkserver_preload(
        [
            "pytest",
            "strandline.jobs.ingest.formats.registry",
            "strandline.jobs.run.pipeline",
            "strandline.jobs.session.interpreter",
            _WRITERS,
        ]
    )
    return context


def exit_code(target: Callable[..., None], *arguments: Any, failpoint: str = "") -> int:
    """Run the function in a process, which kills itself at the failpoint (`name:hit`), and wait for its end.

    Returns:
        The exit code: minus the signal's number when a signal killed it.
    """
    process = warm_processes().Process(target=_run, args=(target, arguments, failpoint))
    process.start()
    process.join(PATIENCE_SECONDS)
    if process.exitcode is None:
        process.kill()
        message = f"{target.__name__} has not ended within {PATIENCE_SECONDS:g} s"
        raise TimeoutError(message)
    return process.exitcode


def _run(target: Callable[..., None], arguments: tuple[Any, ...], failpoint: str) -> None:
    os.environ["STRANDLINE_FAILPOINT"] = failpoint
    target(*arguments)
