"""Routes: from a view's key to the rows of each leaf that matter, and where there is none."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.partial.plan import Route
from tests.unit.partial.shop import QUERIES, plan_of, shop

ROUTES: dict[str, tuple[tuple[str, ...], dict[str, list[Route]]]] = {
    "joined": (
        ("category",),
        {"visits": [Route(0, column="product", origins=((1, "product"),))], "info": [Route(1, own=(("category", 0),))]},
    ),
    "padded": (
        ("product",),
        {"visits": [Route(0, own=(("product", 0),))], "info": [Route(1, own=(("product", 0),))]},
    ),
    "unseen": (
        ("product",),
        {"info": [Route(0, own=(("product", 0),))], "visits": [Route(1, own=(("product", 0),))]},
    ),
    "nested": (
        ("category",),
        {"visits": [Route(0, column="product", origins=((1, "product"),))], "info": [Route(1, own=(("category", 0),))]},
    ),
    "either": (
        ("k",),
        {"visits": [Route(0, own=(("product", 0),))], "info": [Route(1, own=(("category", 0),))]},
    ),
    "twice": (
        ("category",),
        {"info": [Route(0, own=(("category", 0),)), Route(1, own=(("category", 0),))]},
    ),
    "against_all": (("product",), {"visits": [Route(0, own=(("product", 0),)), Route(1)]}),
    "newest": (("category",), {"info": [Route(0, own=(("category", 0),))]}),
    "two_keys": (
        ("category", "length"),
        {"visits": [Route(0, own=(("length", 1),))], "info": [Route(1, own=(("category", 0),))]},
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_routes_of_a_view(settings: Settings, name: str) -> None:
    plan = plan_of(shop(settings, name), name)
    found: dict[str, list[Route]] = {}
    for route in sorted(plan.routes.routes, key=lambda each: each.leaf):
        found.setdefault(plan.leaves.relations[route.leaf].name, []).append(route)
    assert (plan.key, found) == ROUTES[name]


@pytest.mark.parametrize("name", QUERIES)
def test_a_route_stands_after_those_it_goes_through(settings: Settings, name: str) -> None:
    before: set[int] = set()
    for route in plan_of(shop(settings, name), name).routes.routes:
        assert before >= {leaf for leaf, _ in route.origins}
        before.add(route.leaf)
