"""What is computed of a stage once, and kept for as long as the stage is there.

A stage is refreshed again and again, and what its ERRORS makes of it, or the text of its rule, takes milliseconds of
small trees each time. It cannot be looked up by the stage as a value: trees are equal where their hashes are, which
ignore case, and the hash of a large one costs as much. So it is kept by the object, which is the same one in all epochs
of a run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from strandline.jobs.model.stage import Stage

_Rest = ParamSpec("_Rest")
_Made = TypeVar("_Made")


def kept_with_stage(
    function: Callable[Concatenate[Stage, _Rest], _Made],
) -> Callable[Concatenate[Stage, _Rest], _Made]:
    """Keep what a function makes of a stage and of other arguments, which can be hashed. Two threads may both make it.

    Preconditions:
        1. What is made does not refer to the stage: it would never end.
    """
    kept: dict[int, dict[object, _Made]] = {}

    @wraps(function)
    def find(stage: Stage, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Made:
        known = kept.get(id(stage))
        if known is None:
            known = kept.setdefault(id(stage), {})
            weakref.finalize(stage, kept.pop, id(stage), None).atexit = False
        asked = (args, tuple(kwargs.items()))
        if asked not in known:
            known[asked] = function(stage, *args, **kwargs)
        return known[asked]

    return find
