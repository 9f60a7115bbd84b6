"""Typed errors out of text: an error that crossed a JVM or a worker process comes back as the words of its trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline.jobs.model.errors import RefreshFailed
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator


def revive(text: str) -> StrandlineError:
    """The typed error that a text carries, as printed by `str(error)` somewhere inside a stack trace.

    Errors raised in Spark's Python workers and callbacks come back as text; their codes let us find the class again.
    A text without a code becomes `RefreshFailed` with its first lines.
    """
    found = re.search(
        r"\[((?:settings|store|source|sql|pipeline)(?:\.[a-z_]+)?)\] ([^\n]+)(?:\n  hint: ([^\n]+))?", text
    )
    if found is None:
        cause = re.search(r"\n\w*(?:Error|Exception): [^\n]+", text)
        return RefreshFailed(f"the streaming query stopped: {(cause.group().strip() if cause else text)[:500]}")
    code, message, hint = found.groups()
    classes = {cls.code: cls for cls in _all_errors(StrandlineError)}
    return classes.get(code, RefreshFailed)(message, hint=hint)


def _all_errors(root: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from _all_errors(child)
