"""Paths into JSON, as ksqlDB reads them: `$`, then steps `.name`, `[place]`, `["any name"]`.

A step is the name of a member, or the place of an item, from 0: the JSON decides. So `$.0` and `$[0]` are the same.
A text that is no path leads nowhere: places before the first, wildcards and `..` are none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from strandline.jobs.functions.scalars.literals import quoted
from strandline.jobs.model.errors import NotSupported

_STEP = re.compile(r'\.([\w:@]+)|\[(\w+)\]|\["((?:[^"\\]|\\["\\])*)"\]')
# In the text of a row a step in quotes is none: the engines cannot take it apart.
_ROW_PATH = r"^\$(\.[\p{L}\p{N}_:@]+|\[[\p{L}\p{N}_]+\])*\z"
# Signs that no path of Spark's can have in a name.
_UNSPELLED = frozenset("'?")


def steps_of(path: str) -> list[str] | None:
    """The names and places of a path; None: it is no path."""
    if not path.startswith("$"):
        return None
    steps, position = [], 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        name, place, in_quotes = match.groups()
        steps.append(re.sub(r"\\(.)", r"\1", in_quotes) if in_quotes is not None else name or place)
        position = match.end()
    return steps


def check_path(literals: Sequence[str | None]) -> None:
    """Check a path that is a constant. Raises NotSupported: a name in it cannot be asked for on both engines."""
    for step in steps_of(literals[1]) or () if literals[1] is not None else ():
        if not step or _UNSPELLED & set(step):
            raise NotSupported(f"the name '{step}' in a path of JSON is not supported", hint="JSON_RECORDS(…)['name']")


def pointer_of(steps: Sequence[str]) -> str:
    """The steps as a JSON pointer (RFC 6901), whose steps are names or places too."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def row_pointer(dialect: str, path: str) -> str:
    """The pointer of a path that is no constant; NULL where it is no path of plain steps."""
    expression = quoted(_ROW_PATH, dialect)
    matches, step, group = {
        "spark": ("regexp_like", quoted(r"[.\[]([^.\[\]]+)\]?", "spark"), "'/$1'"),
        "duckdb": ("regexp_matches", quoted(r"[.\[]([^.\[\]]+)\]?", "duckdb"), "'/\\1', 'g'"),
    }[dialect]
    return f"CASE WHEN {matches}({path}, {expression}) THEN regexp_replace(substring({path}, 2), {step}, {group}) END"
