"""Pull queries over whatever a query can name: stored tables, and partial views by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.partial.asked import asked
from strandline.jobs.partial.upquery import Upqueries
from strandline.jobs.serve import pull as stored
from strandline.jobs.serve.cut import newest_cut
from strandline.jobs.serve.readable import check_stored
from strandline.jobs.serve.results import Rows
from strandline.jobs.serve.terms import FREELY
from strandline.jobs.serve.values import python_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.serve.cut import Cut
    from strandline.jobs.serve.limits import Spent
    from strandline.jobs.serve.pinned import Pinned
    from strandline.jobs.serve.pull import Answer
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import Lake


def pull(statement: Select, catalog: Catalog, lake: Lake, functions: Library) -> Rows:
    """Answer a SELECT with Python values; arguments and errors as of `answer`."""
    found = answer(statement, catalog, lake, functions)
    return Rows(found.names, python_rows(found.table, found.types))


def answer(statement: Select, catalog: Catalog, lake: Lake, functions: Library, terms: Terms = FREELY) -> Answer:
    """Answer a SELECT. Arguments and errors as of `jobs.serve.pull.answer`."""
    return stored.answer(statement, catalog, lake, functions, terms, _Computing(catalog, lake, functions, terms.pinned))


class _Computing:
    """The partial views of a lake, computed for one query, which keeps nothing of them."""

    def __init__(self, catalog: Catalog, lake: Lake, functions: Library, pinned: Pinned | None) -> None:
        self._pinned = pinned
        self._catalog = catalog
        self._lake = lake
        self._functions = functions

    def tables(
        self, pull: PullQuery, predicate: Predicate | None, spent: Spent
    ) -> tuple[dict[str, pa.Table], Cut] | None:
        """The rows of the keys that a query asks of a partial view.

        Raises:
            KeyRequired, TooLarge: as of `jobs.partial.asked.asked`; otherwise as of `Upqueries.rows`.
        """
        wanted = asked(pull, predicate, self._catalog)
        if wanted is None:
            return None
        joined = [relation.name for relation in pull.relations if relation.name != wanted.plan.relation.name]
        check_stored(joined, self._catalog)
        inputs = list(dict.fromkeys((*wanted.plan.inputs, *joined)))
        cut = newest_cut(inputs, self._lake) if self._pinned is None else self._pinned.cut(inputs, self._lake)
        rows = Upqueries(wanted.plan, self._lake, self._functions).rows(wanted.keys, cut, spent)
        return {wanted.plan.relation.name: rows}, cut
