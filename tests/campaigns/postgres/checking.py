"""Checks of one client, told line by line: `version 1.2`, `ok tables`, `FAIL columns: why`."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[], object]


def told(version: str) -> None:
    """Say which version the client is."""
    print("version", version.splitlines()[0], flush=True)


def check(name: str, ask: Check, expected: object = None) -> None:
    """Say whether an answer is the expected one; None: whether it comes without an error."""
    try:
        found = ask()
    except Exception as error:  # whatever a client raises is what the campaign looks for
        print(f"FAIL {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        return
    if expected is None or found == expected:
        print(f"ok {name}", flush=True)
    else:
        print(f"FAIL {name}: {str(found)[:300]}", flush=True)
