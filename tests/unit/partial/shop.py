"""The lake of the tests of partial views: visits of products, products in categories, each view also stored in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.model.definitions import View
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.state_store.delta import reader
from tests.support.served_lake import ServedLake

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.view import Row

SOURCES = """
    CREATE STREAM visits (id BIGINT KEY, product VARCHAR, length BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR, price INT) WITH (KAFKA_TOPIC = 'info');
"""
QUERIES = {
    "joined": """SELECT i.category, COUNT(*) AS n, SUM(v.length) AS total, MAX(v.length) AS longest
        FROM visits v JOIN info i ON v.product = i.product GROUP BY i.category""",
    "padded": """SELECT v.product, COUNT(*) AS n, MIN(i.category) AS category
        FROM visits v LEFT JOIN info i ON v.product = i.product GROUP BY v.product""",
    "unseen": """SELECT i.product, i.category FROM info i
        WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.product = i.product)""",
    "nested": """SELECT i.category, MAX(c.n) AS most
        FROM (SELECT product, COUNT(*) AS n FROM visits GROUP BY product) c JOIN info i ON c.product = i.product
        GROUP BY i.category""",
    "either": """SELECT k, SUM(n) AS n FROM (
            SELECT product AS k, length AS n FROM visits
            UNION ALL SELECT category AS k, CAST(price AS BIGINT) AS n FROM info) u
        GROUP BY k""",
    "twice": """SELECT a.category, COUNT(*) AS pairs
        FROM info a JOIN info b ON a.category = b.category AND a.price < b.price GROUP BY a.category""",
    "against_all": """SELECT v.product, COUNT(*) AS n, MAX(t.most) AS most
        FROM visits v CROSS JOIN (SELECT MAX(length) AS most FROM visits) t GROUP BY v.product""",
    "newest": "SELECT i.category, MAX(i.ROWTIME) AS newest FROM info i GROUP BY i.category",
    "two_keys": """SELECT i.category, v.length, COUNT(*) AS n
        FROM visits v JOIN info i ON v.product = i.product GROUP BY i.category, v.length""",
}
"""One of each kind of route: own, through a join, padded, anti, through a subquery, a union, a self-join, none, two;
and one that reads hidden columns."""


def shop(settings: Settings, *names: str) -> ServedLake:
    """The lake with these queries, each as the partial view `NAME` and as the stored view `NAME_full`."""
    views = (
        f"CREATE MATERIALIZED VIEW {name} WITH (STATE = 'partial') AS {QUERIES[name]};"
        f"CREATE MATERIALIZED VIEW {name}_full AS {QUERIES[name]};"
        for name in names
    )
    return ServedLake(settings, SOURCES + "".join(views))


def plan_of(served: ServedLake, name: str) -> PartialPlan:
    """The plan of a partial view."""
    catalog = Catalog(served.lake)
    view = catalog.get(name)
    assert isinstance(view, View)
    return partial_plan(view, catalog)


def opened(served: ServedLake, name: str, budget: int = 1 << 20) -> PartialView:
    """A partial view of the lake, as a reading process opens it."""
    plan = plan_of(served, name)
    return PartialView(plan, served.lake, Upqueries(plan, served.lake, Library((), ())), budget)


def full_rows(served: ServedLake, name: str) -> list[Row]:
    """The rows of the stored view."""
    rows: list[Row] = reader.read_rows(served.lake.table(f"{name}_full")).to_pylist()
    return rows
