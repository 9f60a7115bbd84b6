"""Events that looked up a table before it had a row are counted, and others are not."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.late import early_events
from strandline.jobs.model.report import EarlyEvents
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.schedule import maintained, stages_of
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, product BIGINT) WITH (KAFKA_TOPIC = 'orders');
    CREATE TABLE products (id BIGINT PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC = 'products');
    CREATE STREAM named AS SELECT o.product AS product, o.id AS id, p.name AS name
      FROM orders o LEFT JOIN products p ON o.product = p.id;
    CREATE MATERIALIZED VIEW following AS SELECT o.id, p.name FROM orders o JOIN products p ON o.product = p.id;
"""


@pytest.fixture
def served(settings: Settings) -> ServedLake:
    return ServedLake(settings, DEFINITIONS)


def counted(served: ServedLake, view: str = "named") -> tuple[EarlyEvents, ...]:
    catalog = Catalog(served.lake)
    levels = maintained(catalog.pipeline(DEFAULT_PIPELINE), catalog)
    return early_events(served.lake, stages_of(view, levels))


def orders(*ids: int) -> list[dict[str, int]]:
    return [{"id": number, "product": 1} for number in ids]


def test_events_older_than_the_table_are_counted(served: ServedLake) -> None:
    served.append("orders", orders(1, 2, 3))
    served.append("products", [{"id": 1, "name": "pear"}])
    (found,) = counted(served)
    assert found == EarlyEvents("orders", "products", 3, 3)
    assert found.in_words("products") == "3 of 3 events found no row of products that early"
    served.append("orders", orders(4, 5))
    assert counted(served) == (EarlyEvents("orders", "products", 3, 5),)


def test_a_file_that_holds_the_moment_is_read(served: ServedLake) -> None:
    served.append("products", [{"id": 1, "name": "pear"}])
    times = [served._time(each) for each in range(3)]
    served.append("orders", [{"id": n, "product": 1, "_timestamp": at} for n, at in enumerate(times)])
    assert counted(served) == ()
    early = served._time(0).replace(year=2023)
    served.append("orders", [{"id": 7, "product": 1, "_timestamp": early}, {"id": 8, "product": 1}])
    assert counted(served) == (EarlyEvents("orders", "products", 1, 5),)


def test_nothing_is_counted_where_no_table_is_looked_up_or_it_has_no_row(served: ServedLake) -> None:
    served.append("orders", orders(1))
    assert counted(served) == ()
    served.append("products", [{"id": 1, "name": "pear"}])
    assert counted(served, "following") == ()
