"""What a SELECT asks of a partial view: the keys that its WHERE names."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.serve.errors import KeyRequired, TooLarge
from strandline.jobs.serve.pushdown import part_predicate
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.upquery import Key
    from strandline.jobs.query.logical import PullQuery
    from strandline.state_store.delta.statistics import Predicate

MOST_KEYS: Final = 10_000
"""Of one query. Who wants more of a view at once wants it stored."""


@dataclass(frozen=True)
class Asked:
    """The keys of a partial view that a query reads."""

    plan: PartialPlan
    keys: list[Key]


def asked(pull: PullQuery, predicate: Predicate | None, catalog: Catalog) -> Asked | None:
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
    return Asked(plan, keys)


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
