"""The part of the lock file that an image needs: what the package asks for, with its extras of operation, and all that
these ask for in turn.

    python infra/deploy/runtime.py requirements.lock pyproject.toml > runtime.lock

The lock file is made for development as well. It says below each entry what asks for it (`# via`), and that is a graph:
from the package's own names everything is reached that an image needs, with the same versions and hashes.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("openlineage", "otel")
"""What operators ask for by a setting alone, so that the image has it."""

BUILD = ("setuptools", "wheel")
"""What builds the package; the image removes it again."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def entries(lock: str) -> dict[str, str]:
    """{name: its lines} of a lock file."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lock.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            name = normal(line)
            found[name] = []
        if name:
            found[name].append(line)
    return {each: "\n".join(lines) for each, lines in found.items()}


def normal(requirement: str) -> str:
    """The name of a requirement, as indexes compare names."""
    found = _NAME.match(requirement.strip())
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def asked_by(entry: str) -> set[str]:
    """The names that ask for an entry."""
    lines = [line.strip().removeprefix("#").strip() for line in entry.splitlines() if line.strip().startswith("#")]
    named = (line.removeprefix("via").strip() for line in lines)
    return {normal(each) for each in named if each and _NAME.match(each)}


def needed(lock: str, project: str) -> str:
    """The lock file of an image.

    Raises:
        KeyError: the package asks for what the lock file does not have.
    """
    known = entries(lock)
    asked = tomllib.loads(project)["project"]
    wanted = [*asked["dependencies"], *(each for extra in EXTRAS for each in asked["optional-dependencies"][extra])]
    reached = {normal(each) for each in (*wanted, *BUILD)}
    missing = reached - known.keys()
    if missing:
        raise KeyError(f"the lock file lacks {', '.join(sorted(missing))}: type make lock")
    while True:
        more = {name for name, entry in known.items() if name not in reached and asked_by(entry) & reached}
        if not more:
            return "\n".join(known[name] for name in sorted(reached)) + "\n"
        reached |= more


if __name__ == "__main__":
    sys.stdout.write(needed(*(Path(each).read_text(encoding="utf-8") for each in sys.argv[1:3])))
