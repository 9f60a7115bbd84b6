"""The pipeline of the benchmarks of freshness and of the soak: five views, of which two join and one is a window.

    clicks ──┬──> per_page       counted by page
             ├──> per_minute     counted by windows of a minute
             └──> present        the last click of each visitor ──┬── ⋈ visitors ──> per_country
                                                                  └── ⋈ pages ─────> per_section

The joins read the view `present`: each click takes a row back there and adds one, so what the joins group shrinks as
well as grows, and what is stored does not grow with the number of clicks.
"""

from __future__ import annotations

from typing import Final

VISITORS: Final = 2_000
PAGES: Final = 200
COUNTRIES: Final = 20
SECTIONS: Final = 10

STATEMENTS: Final = """
CREATE STREAM clicks (id BIGINT, visitor INT, page INT, seconds INT)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE visitors (visitor INT PRIMARY KEY, country VARCHAR)
  WITH (KAFKA_TOPIC='visitors', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE pages (page INT PRIMARY KEY, section VARCHAR)
  WITH (KAFKA_TOPIC='pages', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS=1);

CREATE TABLE per_page AS
  SELECT page, COUNT(*) AS clicks, MAX(id) AS newest FROM clicks GROUP BY page;
CREATE TABLE per_minute AS
  SELECT page, COUNT(*) AS clicks, MAX(id) AS newest FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY page;
CREATE TABLE present AS
  SELECT visitor, LATEST_BY_OFFSET(page) AS page, LATEST_BY_OFFSET(seconds) AS seconds, MAX(id) AS newest
  FROM clicks GROUP BY visitor;
CREATE MATERIALIZED VIEW per_country AS
  SELECT country, COUNT(*) AS present, MAX(seconds) AS longest, MAX(newest) AS newest
  FROM present JOIN visitors ON present.visitor = visitors.visitor GROUP BY country;
CREATE MATERIALIZED VIEW per_section AS
  SELECT section, COUNT(*) AS present, MAX(seconds) AS longest, MAX(newest) AS newest
  FROM present JOIN pages ON present.page = pages.page GROUP BY section;
"""
VIEWS: Final = ("per_page", "per_minute", "present", "per_country", "per_section")


def click(number: int) -> dict[str, int]:
    """Click `number`: the same in every run; neighbours are of other visitors and pages."""
    return {
        "id": number,
        "visitor": number * 7_919 % VISITORS,
        "page": number * 104_729 % 1_009 % PAGES,
        "seconds": number * 31 % 997,
    }


def country(visitor: int, move: int = 0) -> str:
    """The country of a visitor after so many moves."""
    return f"country {(visitor + move) % COUNTRIES}"


def section(page: int) -> str:
    """The section of a page."""
    return f"section {page % SECTIONS}"
