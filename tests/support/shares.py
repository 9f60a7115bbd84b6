"""Which tests `make test` runs: all but of the longest, and of those a share, another one with each commit.

Whole, the tests take an hour on two cores, four fifths of it a tenth of them. `make test` is for every change, so it
takes a third or a quarter of those: of a test by its cases (`@pytest.mark.share(n)`, and the places to kill at), of a
file below by its tests. Which ones they are goes by the number of commits, so a few changes in a row run all of them;
the first line of the output says how to run the same again. `make test-all` and `make nightly` leave nothing out, nor
does pytest with the name of a file or a test.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final

from tests.support.examples import AT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pytest

_OF_KILLS: Final = 3
"""A process that is killed and another that goes on take seconds each, and a test has a dozen places to kill at."""

_QUARTER: Final = """
    tests/conformance/test_runner.py
    tests/unit/functions/test_domains.py
    tests/unit/ivm/test_retention.py
    tests/unit/query/clauses/test_maintained.py
    tests/unit/run/test_failing_rows.py
    tests/unit/run/test_replaced_shared_while_running.py
    tests/unit/server/test_partial.py
    tests/unit/server/test_query.py
    tests/unit/server/test_renamed.py
    tests/unit/session/test_replaced_stream.py
    tests/unit/sql/test_size.py
"""
"""The files of 40 and more processor seconds, most of which a few tests take."""

_THIRD: Final = """
    tests/live/
    tests/nexmark/
    tests/properties/
    tests/spark/
    tests/unit/campaigns/
    tests/unit/operate/
    tests/unit/orchestration/
    tests/unit/publish/
    tests/unit/run/
    tests/unit/server/
    tests/unit/session/
    tests/unit/catalog/test_broken.py
    tests/unit/cli/test_main.py
    tests/unit/cli/test_operations.py
    tests/unit/cli/test_renamed.py
    tests/unit/expect/test_validate.py
    tests/unit/functions/aggregates/test_doubles.py
    tests/unit/functions/aggregates/test_retraction.py
    tests/unit/functions/scalars/test_scalars.py
    tests/unit/functions/test_failing.py
    tests/unit/ivm/plan/test_plan_runs.py
    tests/unit/ivm/test_binding.py
    tests/unit/partial/test_equal_to_full.py
    tests/unit/partial/test_view.py
    tests/unit/query/clauses/test_from_clause.py
    tests/unit/serve/test_pull.py
    tests/unit/state_store/delta/test_cleanup.py
    tests/unit/state_store/replicas/test_follow.py
    tests/unit/state_store/test_kills.py
    tests/unit/test_observability.py
    tests/unit/test_recipes.py
"""
"""The files of 12 and more; and folders whose tests start a JVM, a broker, servers or other processes, as a whole."""

_ALWAYS: Final = "tests/properties/paths/test_paths.py"
"""Every path to a view's rows, in 200 examples."""

FILES: Final[Mapping[str, int]] = dict.fromkeys(_QUARTER.split(), 4) | dict.fromkeys(_THIRD.split(), 3)
"""{file or folder: it runs one in so many of its tests}, a file before its folder.

Measured with the processor's time of tests and their children.
"""


def turn() -> int:
    """Which of the shares: `STRANDLINE_TURN`, of which the Makefile makes the number of commits."""
    return int(os.environ.get("STRANDLINE_TURN") or 0)


def takes_all(arguments: Iterable[str]) -> bool:
    """True if nothing is left out: at length, or where files or tests are named."""
    return (
        AT_LENGTH
        or os.environ.get("STRANDLINE_WHOLE") == "1"
        or any("::" in each or each.endswith(".py") for each in arguments)
    )


def left_out(items: Sequence[pytest.Item]) -> set[str]:
    """The ids of the tests that this turn leaves to others."""
    sharing: dict[tuple[str, int], list[str]] = {}
    for item in items:
        found = _share(item)
        if found is not None:
            sharing.setdefault(found, []).append(item.nodeid)
    return {each for (_, of), ids in sharing.items() for each in _without_turn(ids, of)}


def _share(item: pytest.Item) -> tuple[str, int] | None:
    """What a test is a part of, and the share of that which is run."""
    test = item.nodeid.partition("[")[0]
    marker = item.get_closest_marker("share")
    if marker is not None:
        return test, int(marker.args[0])
    file = item.nodeid.partition("::")[0]
    found = next((each for each in FILES if file.startswith(each)), None) if file != _ALWAYS else None
    if found is not None:
        return found, FILES[found]
    return (test, _OF_KILLS) if item.get_closest_marker("kill") is not None else None


def _without_turn(ids: Sequence[str], of: int) -> list[str]:
    """All but every so manieth, in an order that has nothing to do with theirs; at least one is run."""
    ordered = sorted(ids, key=lambda each: zlib.crc32(each.encode()))
    first = turn() % min(of, len(ordered))
    taken = {*ordered[first::of]}
    return [each for each in ordered if each not in taken]
