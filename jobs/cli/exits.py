"""The exit codes of the command, and the one place where an error becomes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from jobs.cli.output import say
from state_store.errors import StrandlineError

BROKEN = 1
USER_ERROR = 2
INTERRUPTED = 130


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turns errors into a message and an exit code; a reader that closes the pipe is no error."""
    try:
        yield
    except StrandlineError as error:
        say(str(error))
        raise typer.Exit(USER_ERROR) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit, into a pipe that is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
