"""Runs a `strandline` command as a child process of a step: what a person would type, with its code, hints and JSON.

A child of its own, since a rebuild may start a JVM, and so that a cancel ends all of it. Its standard error goes to the
run's compute logs; the objects that it prints are returned. When the step's process is killed, the child's lifeline
ends it (`jobs.run.lifeline`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.run.lifeline import LIFELINE_FD
from strandline.orchestration.launch import GRACE_SECONDS, Echo, lifeline
from strandline.orchestration.processes import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.settings import Settings

# The exit code of a command that worked, and found something that is not as it must be.
_FOUND_BROKEN = 1
# An error of ours is a line and its hint.
_SAID_LINES = 3


def run_command(context: dg.OpExecutionContext, settings: Settings, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run `strandline ARGUMENTS --json` over the lake of `settings` to its end.

    Returns:
        the objects that it printed.

    Raises:
        Failure: it ended with another code than 0. What it printed is in the failure's metadata.
    """
    command = [sys.executable, "-m", "strandline.jobs.cli.main", *arguments, "--json"]
    with tempfile.TemporaryFile("w+") as output, lifeline() as descriptor:
        environment = {
            **os.environ,
            LIFELINE_FD: str(descriptor),
            "STRANDLINE_LAKE": str(settings.lake),
            "PYTHONUNBUFFERED": "1",
        }
        child = ProcessGroup(command, env=environment, stdout=output, stderr=subprocess.PIPE, pass_fds=[descriptor])
        echo = Echo(child.stderr)
        try:
            context.log.info("started process %d: strandline %s", child.pid, " ".join(arguments))
            code = child.wait()
        finally:
            child.stop(GRACE_SECONDS)
            tail = echo.finish()
        output.seek(0)
        printed = [json.loads(line) for line in output if line.startswith("{")]
    if code != 0:
        told = "found what is not as it must be" if code == _FOUND_BROKEN else f"failed with exit code {code}"
        shown = {"standard error (end)": dg.MetadataValue.md(f"```\n{tail.rstrip()}\n```")}
        if printed:
            shown["printed"] = dg.MetadataValue.md(f"```json\n{_lines(printed)}\n```")
        last = "\n".join(tail.rstrip().splitlines()[-_SAID_LINES:])
        raise dg.Failure(f"strandline {arguments[0]} {told}:\n{last}", metadata=shown, allow_retries=False)
    return printed


def told(printed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a command printed, as metadata: the numbers of a single object by name, so that Dagster plots them."""
    numbers = printed[0] if len(printed) == 1 else {}
    shown = {label: value for label, value in numbers.items() if isinstance(value, int | float | str)}
    return {**shown, "printed": dg.MetadataValue.md(f"```json\n{_lines(printed)}\n```")}


def _lines(printed: Sequence[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(each) for each in printed)
