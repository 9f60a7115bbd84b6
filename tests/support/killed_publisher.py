"""A publisher in a process of its own, begun in milliseconds, to be killed."""

from __future__ import annotations

import multiprocessing
import os

from strandline.jobs.model.settings import Settings
from strandline.jobs.publish.publisher import open_publisher
from tests.support.waiting import PATIENCE_SECONDS


def published(settings: Settings, view: str, failpoint: str) -> int | None:
    """The exit code of a publisher of the view; `failpoint` is where it kills itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_publish, args=(settings, view, failpoint))
    process.start()
    process.join(PATIENCE_SECONDS)
    return process.exitcode


def _publish(settings: Settings, view: str, failpoint: str) -> None:
    os.environ["STRANDLINE_FAILPOINT"] = failpoint
    open_publisher(settings, view).catch_up()
