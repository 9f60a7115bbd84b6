"""The client that runs a pipeline's drain as a child process and never leaves it behind.

Dagster's own subprocess client leaves children alive: on cancel it sends SIGINT to one process, waits, and gives up.
This client ends the child's whole session (the JVM is in it), by SIGTERM and then SIGKILL. When the process that
watches the child is itself killed, the child's lifeline (`jobs.run.lifeline`) closes and the child ends itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.run.lifeline import LIFELINE_FD
from strandline.orchestration.processes import ProcessGroup
from strandline.state_store.errors import Action

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Context = dg.OpExecutionContext | dg.AssetExecutionContext

# A JVM that is asked to end stops its streaming query, removes its temporary files and exits within 1–3 s; a machine
# that swaps takes longer. Must stay below run_monitoring.cancel_timeout_seconds in dagster.yaml.
GRACE_SECONDS = 30.0
# The end of a Spark stack trace with its `Caused by` chain fits; the whole output is in the run's compute logs.
_TAIL_LINES = 60
# The group has ended by then; only a process that left the session could still hold the other end open.
_ECHO_ENDS_WITHIN_SECONDS = 5.0


class DrainClient(dg.PipesClient):
    """A Pipes client for child processes that never outlive their step.

    Args:
        grace_seconds: between SIGTERM and SIGKILL.
        timeout_seconds: ends a child that runs longer; None lets it run. Drains are bounded by what the topics hold,
            and a first backfill may take hours, so there is no limit unless the caller knows one.
        env: added to the environment of the child.
    """

    def __init__(
        self,
        *,
        grace_seconds: float = GRACE_SECONDS,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.grace_seconds = grace_seconds
        self.timeout_seconds = timeout_seconds
        self.env = dict(env or {})

    def run(  # type: ignore[override]
        self,
        *,
        context: Context,
        extras: dict[str, Any] | None = None,
        command: Sequence[str],
    ) -> dg.PipesClientCompletedInvocation:
        """Run `command` in a Pipes session until it ends.

        Returns:
            The child's reports. Take the results with `implicit_materializations=False`: an asset that the child did
            not report is not materialized.

        Raises:
            Failure: the child ended with another code than 0, took too long, or sent no report. Retries are allowed
                when it was killed from outside, or when the action of its error is a retry.
        """
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
            extras=extras,
        ) as session:
            code, tail = self._run_child(command, session.get_bootstrap_env_vars(), context)
        messages = _merged(session.get_custom_messages())
        if code != 0:
            raise _failure(code, messages.get("error", {}), tail, self.timeout_seconds)
        if "report" not in messages:
            raise dg.Failure(
                "the drain ended with exit code 0, but without its report: nothing is known of the tables",
                metadata={"standard error (end)": _fenced(tail)},
            )
        return dg.PipesClientCompletedInvocation(session)

    def _run_child(
        self, command: Sequence[str], bootstrap: Mapping[str, str], context: Context
    ) -> tuple[int | None, str]:
        """The exit code (None: ended by us at the time limit) and the end of standard error."""
        with lifeline() as descriptor:
            environment = {
                **os.environ,
                **self.env,
                **bootstrap,
                LIFELINE_FD: str(descriptor),
                # Lines reach the run's logs when they are written, not when a buffer is full.
                "PYTHONUNBUFFERED": "1",
            }
            child = ProcessGroup(command, env=environment, stderr=subprocess.PIPE, pass_fds=[descriptor])
            echo = Echo(child.stderr)
            code: int | None = None
            try:
                context.log.info("started process %d: %s", child.pid, " ".join(command))
                code = child.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                context.log.error("process %d took longer than %s s: ending it", child.pid, self.timeout_seconds)
            finally:
                child.stop(self.grace_seconds)
                tail = echo.finish()
        return code, tail


class Echo:
    """Copies a child's standard error to ours, where Dagster's compute logs pick it up, and keeps its end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._thread = Thread(target=self._copy, name="stderr", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """The last lines, once every process that could write has ended."""
        self._thread.join(_ECHO_ENDS_WITHIN_SECONDS)
        return "".join(self._lines)

    def _copy(self) -> None:
        with self._stream:
            for line in self._stream:
                self._lines.append(line)
                sys.stderr.write(line)


@contextmanager
def lifeline() -> Iterator[int]:
    """A child's lifeline: the reading end of a pipe whose writing end only this process holds."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _merged(messages: Sequence[Any]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message, dict):
            merged.update(message)
    return merged


def _failure(code: int | None, error: Mapping[str, Any], tail: str, limit: float | None) -> dg.Failure:
    """The failure of a step whose child failed, with the child's own error if it sent one."""
    if code is None:
        told, again = f"the drain took longer than {limit:g} s and was ended", False
    elif error:
        hint = f"\nhint: {error['hint']}" if error.get("hint") else ""
        where = f" ({error['where']})" if error.get("where") else ""
        told = f"[{error['code']}] {error['message']}{where}{hint}"
        again = error["action"] == Action.RETRY
    elif code < 0:
        told, again = f"the drain was killed by signal {-code} (out of memory?)", True
    else:
        told, again = f"the drain failed with exit code {code}; see the end of its standard error", False
    metadata: dict[str, dg.MetadataValue[Any]] = {"standard error (end)": _fenced(tail)}
    if code is not None:
        metadata["exit code"] = dg.MetadataValue.int(code)
    if error:
        metadata["error code"] = dg.MetadataValue.text(error["code"])
        metadata["action"] = dg.MetadataValue.text(error["action"])
    return dg.Failure(told, metadata=metadata, allow_retries=again)


def _fenced(text: str) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.md(f"```\n{text.rstrip() or '(nothing)'}\n```")


def drain_command(pipeline: str) -> list[str]:
    """The command that drains a pipeline, with the interpreter that runs this process: it has the packages."""
    return [sys.executable, "-m", "strandline.jobs.run.dagster_child", pipeline]
