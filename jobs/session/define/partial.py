"""The checks of a partial view: what its other options may say, and that it can be read by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused
from strandline.jobs.model.options import OWNERSHIP_OPTIONS
from strandline.jobs.model.relation import Relation
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Block, Query
from strandline.jobs.session.define.allowed_options import error
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View
    from strandline.jobs.sql.syntax import Option

_WHY_NOT = {
    "REFRESH": "nothing is refreshed",
    "ERRORS": "a row on which an expression fails makes the reading of its key fail",
    "SEMANTICS": "a group that once existed is known to a stored view alone",
}
"""Options that only a stored view obeys. Any other that is not about its ownership belongs to its changelog topic."""
_OBEYED = ("STATE", "CACHE_BYTES", *OWNERSHIP_OPTIONS)


def check_options(options: Sequence[Option]) -> None:
    """Check the options of a view that depend on its STATE.

    Raises:
        OptionRefused: one has no meaning for a partial view, or CACHE_BYTES for a view that is stored.
    """
    given = {option.name: option for option in options}
    state = given.get("STATE")
    if state is None or state.value.lower() != "partial":
        if "CACHE_BYTES" in given:
            raise error(
                OptionRefused, given["CACHE_BYTES"], "CACHE_BYTES is for partial views", "add STATE = 'partial'"
            )
        return
    for name, option in given.items():
        if name in _OBEYED or (name == "SEMANTICS" and option.value.lower() == "sql"):
            continue
        why = _WHY_NOT.get(name, "it has no changelog")
        raise error(OptionRefused, option, f"{name} is not for partial views: {why}", f"leave {name} or STATE out")


def check_partial(view: View, catalog: Catalog) -> None:
    """Check that the rows of a view can be computed key by key.

    Raises:
        InvalidQuery: it is a stream, it has no visible key, or no column of its key selects rows of its inputs.
        NotSupported: what a key has depends on all other rows, or DuckDB has no function for one of its aggregates.
    """
    if view.storage == "append" or view.kind == "stream":
        raise InvalidQuery(
            sentence("'{}' is a stream: its rows are events, and have no key to be read by", Name(view.name)),
            hint="leave STATE = 'partial' out, or add GROUP BY",
        )
    if _final(query_of(view, catalog)):
        raise NotSupported(
            sentence(
                "'{}' cannot be partial: EMIT FINAL shows a window once the events of all keys are past it",
                Name(view.name),
            ),
            hint="leave EMIT FINAL or STATE = 'partial' out",
        )
    # Late: what reads tables need not be loaded for all other definitions.
    from strandline.jobs.partial.plan import partial_plan

    partial_plan(view, catalog)


def _final(query: Query) -> bool:
    """True if a window of the query, or of a subquery, is shown once it is closed."""
    if not isinstance(query, Block):
        return any(_final(branch) for branch in query.branches)
    own = query.window is not None and query.window.final
    return own or any(_final(part.source) for part in query.inputs if not isinstance(part.source, Relation))
