"""The pictures of the page in docs/serving.md: `python -m tests.support.screenshots [FOLDER]`.

They are taken of a real server over a small shop's lake, whose views move while the page is open.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread

from infra.browser import CHROMIUM, Page, browser
from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from tests.support.listening import listening
from tests.support.served_lake import ServedLake

FOLDER = Path("docs/images")
MOST_BYTES = 200_000
"""Of a picture: they lie in the repository, and each new one stays in its history."""

DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, product VARCHAR, amount DECIMAL(10, 2))
        WITH (KAFKA_TOPIC = 'orders');
    CREATE TABLE products (name VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'products');
    CREATE TABLE by_customer AS
        SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY customer;
    CREATE TABLE by_category AS
        SELECT p.category, COUNT(*) AS orders, SUM(o.amount) AS amount
        FROM orders o JOIN products p ON o.product = p.name GROUP BY p.category;
    CREATE TABLE good_customers AS SELECT customer, amount FROM by_customer WHERE amount > 2000;
"""
CUSTOMERS = ("Ada", "Barbara", "Edsger", "Grace", "Leslie", "Tony")
PRODUCTS = {"lamp": "home", "chair": "home", "rope": "boats", "sail": "boats", "atlas": "books"}
SQL = "SELECT category, orders, amount\nFROM by_category\nWHERE orders > 10\nORDER BY amount DESC"


def main(folder: Path) -> None:
    """Take the pictures."""
    assert CHROMIUM is not None, "there is no chromium: bash infra/browser.sh"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        served = ServedLake(load_settings(lake=place / "lake"), DEFINITIONS)
        products = [{"name": each, "category": category} for each, category in PRODUCTS.items()]
        served.append("products", products)
        app = application(served.settings, ServerOptions(place / "server", queries=1))
        with _moving(served), listening(app) as address, browser(place / "chromium") as page:
            page.open(address, 1100, 860)
            _views(page)
            taken(page, folder / "page-views.png")
            _queried(page)
            taken(page, folder / "page-query.png")


def _views(page: Page) -> None:
    """A view is open, a key was found, and changes come."""
    page.until("document.querySelectorAll('#views-rows tr').length === 5")
    page.value(
        "[...document.querySelectorAll('#views-rows button')].find(b => b.textContent === 'by_customer').click()"
    )
    page.until("document.querySelector('#key-0')")
    page.value("document.querySelector('#follow').click(); document.querySelector('#key-0').focus()")
    page.until("document.querySelectorAll('#changes-rows tr').length >= 10")
    page.until("[...document.querySelectorAll('#views-rows tr')].every(row => row.cells[4].textContent !== '0')")
    page.type("Grace")
    page.press("Enter")
    page.until("document.querySelector('#search-found table')")
    page.value("scrollTo(0, 0)")


def _queried(page: Page) -> None:
    """A query was answered, and the lineage is drawn."""
    page.value("document.querySelector('#query-text').focus()")
    page.type(SQL)
    # The first query waits for its process to import its libraries.
    for _ in range(2):
        page.value("document.querySelector('#query-found').replaceChildren()")
        page.press("Enter", ctrl=True)
        page.until("document.querySelectorAll('#query-found td').length >= 3")
    page.value("document.querySelector('#query').scrollIntoView()")


def taken(page: Page, path: Path) -> None:
    """Take a picture, which must be small."""
    page.picture(path)
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{path} has {size:,} bytes"
    print(f"{path}: {size:,} bytes")


@contextmanager
def _moving(served: ServedLake) -> Iterator[None]:
    """An epoch of a few orders, again and again."""
    ended = Event()

    def feed() -> None:
        number = 0
        with served.duckdb_engine() as duckdb_engine:
            while not ended.wait(0.3):
                orders = range(number, number + 200)
                served.append("orders", [_order(each) for each in orders])
                served.refresh(duckdb_engine)
                number = orders.stop

    thread = Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _order(number: int) -> dict[str, object]:
    customer = CUSTOMERS[number * 7 % 11 % len(CUSTOMERS)]
    product = list(PRODUCTS)[number * 5 % 13 % len(PRODUCTS)]
    return {"id": number, "customer": customer, "product": product, "amount": Decimal(number % 90 * 25 + 150) / 100}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
