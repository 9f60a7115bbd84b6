"""Pull queries over whatever a query can name: stored tables, and partial views by key."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.upquery import Upqueries
from strandline.jobs.serve import pull as stored
from strandline.jobs.serve.consistent_snapshot import newest_snapshot
from strandline.jobs.serve.errors import KeyRequired, TooLarge
from strandline.jobs.serve.pushdown import part_predicate
from strandline.jobs.serve.readable import check_stored
from strandline.jobs.serve.results import Rows
from strandline.jobs.serve.terms import FREELY
from strandline.jobs.serve.values import python_rows
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.upquery import Key
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, Pinned
    from strandline.jobs.serve.pull import Answer, PlannedPull
    from strandline.jobs.serve.query_engine import QueryDatabase
    from strandline.jobs.serve.terms import QueryBudget, Terms
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import LakeLayout


# What a SELECT asks of a partial view: the keys that its WHERE names.

MOST_KEYS: Final = 10_000
"""Of one query. Who wants more of a view at once wants it stored."""


@dataclass(frozen=True)
class AskedKeys:
    """The keys of a partial view that a query reads."""

    plan: PartialPlan
    keys: list[Key]


def asked(pull: PullQuery, predicate: Predicate | None, catalog: Catalog) -> AskedKeys | None:
    """The keys that a query asks of a partial view; None when it reads none.

    Args:
        predicate: of the only table of the query, as `jobs.serve.pushdown.key_predicate` finds it.

    Raises:
        KeyRequired: its WHERE does not give all columns of the view's key, or it reads the view twice.
        TooLarge: it names more keys than a query may.
    """
    definitions = [catalog.find(relation.name) for relation in pull.relations]
    views = [found for found in definitions if isinstance(found, View) and found.partial]
    if not views:
        return None
    plan = partial_plan(views[0], catalog)
    given = predicate or part_predicate(pull, views[0].name) or {}
    if len(views) > 1:
        given = {}
    if not given.keys() >= set(plan.key):
        raise key_required(plan, next((name for name in plan.key if name not in given), plan.key[0]))
    keys = list(product(*(dict.fromkeys(given[name]) for name in plan.key)))
    if len(keys) > MOST_KEYS:
        raise TooLarge(
            sentence("the query names {} keys of '{}'", f"{len(keys):,}", Name(plan.relation.name)),
            hint=f"at most {MOST_KEYS:,}",
        )
    return AskedKeys(plan, keys)


def key_required(plan: PartialPlan, missing: str) -> KeyRequired:
    """The error of a reader that does not give a column of the key."""
    name, where = plan.relation.name, " AND ".join(f"{each} = …" for each in plan.key)
    return KeyRequired(
        sentence("'{}' is a partial view, read by key: '{}' is not given", Name(name), missing),
        hint=sentence(
            "SELECT … FROM {} WHERE {}, with constants; or create it without STATE = 'partial'",
            Name(name, quote),
            where,
        ),
    )


def pull(statement: Select, catalog: Catalog, lake: LakeLayout, functions: Library) -> Rows:
    """Answer a SELECT with Python values; arguments and errors as of `answer`."""
    found = answer(stored.plan_pull(statement, catalog, lake), catalog, lake, functions)
    return Rows(found.names, python_rows(found.table, found.types))


def answer(
    plan: PlannedPull,
    catalog: Catalog,
    lake: LakeLayout,
    functions: Library,
    terms: Terms = FREELY,
    database: QueryDatabase | None = None,
) -> Answer:
    """Answer a SELECT, which may read partial views. Arguments and errors as of `jobs.serve.pull.answer`."""
    computing = _Computing(catalog, lake, functions, terms.pinned, database)
    return stored.answer(plan, catalog, lake, functions, terms, computing, database)


class _Computing:
    """The partial views of a lake, computed for one query, which keeps nothing of them."""

    def __init__(
        self,
        catalog: Catalog,
        lake: LakeLayout,
        functions: Library,
        pinned: Pinned | None,
        database: QueryDatabase | None,
    ) -> None:
        self._pinned = pinned
        self._database = database
        self._catalog = catalog
        self._lake = lake
        self._functions = functions

    def tables(
        self, pull: PullQuery, predicate: Predicate | None, spent: QueryBudget
    ) -> tuple[dict[str, pa.Table], ConsistentSnapshot] | None:
        """The rows of the keys that a query asks of a partial view.

        Raises:
            KeyRequired, TooLarge: as of `jobs.partial.pull.asked`; otherwise as of `Upqueries.rows`.
        """
        wanted = asked(pull, predicate, self._catalog)
        if wanted is None:
            return None
        joined = [relation.name for relation in pull.relations if relation.name != wanted.plan.relation.name]
        check_stored(joined, self._catalog)
        inputs = list(dict.fromkeys((*wanted.plan.inputs, *joined)))
        cut = newest_snapshot(inputs, self._lake) if self._pinned is None else self._pinned.cut(inputs, self._lake)
        upqueries = Upqueries(wanted.plan, self._lake, self._functions, database=self._database)
        rows = upqueries.rows(wanted.keys, cut, spent)
        return {wanted.plan.relation.name: rows}, cut
