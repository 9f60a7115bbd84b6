"""EXPLAIN of a partial view: how a key is computed, and what a change of its inputs does to the keys that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.sql.dialect import quote

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View
    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.routes import Route


def explain_partial(view: View, catalog: Catalog, *, upquery: bool) -> str:
    """The routes of a partial view in words.

    Args:
        upquery: add the SQL of an upquery.

    Raises:
        SqlError: the query no longer fits its inputs.
    """
    plan = partial_plan(view, catalog)
    lines = [
        *catalog.name_map.legend([view.name, *(each.name for each in plan.leaves.relations)]),
        f"partial {view.kind} {quote(view.name)} (pipeline '{view.pipeline}', fingerprint {view.fingerprint})",
        f"  {view.query}",
        "",
        f"nothing is stored; a reader gives {', '.join(plan.key)}, and keeps keys in {view.maintenance.cache_bytes:,} "
        "bytes at most",
        "",
    ]
    lines += [line for route in plan.routes.routes for line in _route(route, plan)]
    if upquery:
        lines += ["", "a key that is not kept is computed by", "", f"    {plan.sql}"]
    return "\n".join(lines)


def _route(route: Route, plan: PartialPlan) -> list[str]:
    name = quote(plan.leaves.relations[route.leaf].name)
    if route.own:
        same = " and ".join(f"{column} = {plan.key[place]}" for column, place in route.own)
        return [f"{name}: rows with {same}", "  a change drops the keys that it names"]
    if route.origins:
        above = " or ".join(f"{quote(plan.leaves.relations[leaf].name)}.{column}" for leaf, column in route.origins)
        return [
            f"{name}: rows whose {route.column} is an {above} of the rows before",
            f"  a change drops the keys that it leads to by {above}, before it or after",
        ]
    return [f"{name}: all rows", "  a change drops all keys: none of its columns leads to the key"]
