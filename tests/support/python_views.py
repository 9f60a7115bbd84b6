"""Views in Python of every kind that the language has words for, over three relations, and the relations' events.

What each must give, Ibis's own DuckDB says of the same function: it shares nothing with the way through the language.
Its parts that do not say the same in both are left out here and named in docs/python.md: ROUND of a negative half,
division by zero.
"""

from __future__ import annotations

from typing import Any

import ibis
from ibis import _

from strandline.views import view

SOURCES = """
CREATE TABLE customers (customer_id BIGINT PRIMARY KEY, customer VARCHAR, country VARCHAR);
CREATE TABLE orders (order_id BIGINT PRIMARY KEY, customer_id BIGINT, product VARCHAR, amount DECIMAL(10, 2),
  score DOUBLE, pieces INT, at TIMESTAMP, day DATE, tags ARRAY<VARCHAR>, place STRUCT<city VARCHAR, floor INT>);
CREATE STREAM clicks (click_id BIGINT KEY, customer_id BIGINT, page VARCHAR, seen TIMESTAMP);
"""
FIRST = """
INSERT INTO customers VALUES (1, 'ann', 'it'), (2, 'bob', NULL), (3, 'cleo', 'no'), (4, NULL, 'it');
INSERT INTO orders VALUES
  (1, 1, 'leek', 12.50, 1.25, 3, '2026-01-31T10:07:00', '2026-01-31', ARRAY['a', 'b'], {'city': 'Rome', 'floor': 1}),
  (2, 1, 'apple', 7.00, -2.5, -7, '2026-02-01T23:59:59', '2026-02-01', ARRAY['b'], {'city': 'Oslo', 'floor': 2}),
  (3, 2, 'leek', 99.99, 4.0, 10, '2025-12-31T00:00:00', '2025-12-31',
    ARRAY['c', 'a', 'a'], {'city': 'Rome', 'floor': 3}),
  (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (5, 3, 'pear', 7.00, 0.5, 2, '2026-02-01T00:00:00', '2026-02-01', ARRAY['b'], {'city': NULL, 'floor': 1}),
  (6, 9, ' apple_x ', 0.01, 9.75, 1, '2024-02-29T12:30:15', '2024-02-29', ARRAY['d'], {'city': 'Bari', 'floor': 0});
INSERT INTO clicks VALUES (1, 1, 'home', '2026-01-01T00:00:00'), (2, 1, 'shop', '2026-01-01T00:14:59'),
  (3, 3, 'home', '2026-01-01T00:15:00');
"""
SECOND = """
INSERT INTO customers VALUES (2, 'bob', 'no');
INSERT INTO orders VALUES
  (3, 2, 'leek', 1.00, 4.0, 10, '2025-12-31T00:00:00', '2025-12-31', ARRAY['c'], {'city': 'Rome', 'floor': 3}),
  (7, 2, 'pear', 55.00, 0.1, 5, '2026-02-02T08:00:00', '2026-02-02', ARRAY['e'], {'city': 'Oslo', 'floor': 9});
DELETE FROM orders WHERE order_id = 1;
DELETE FROM customers WHERE customer_id = 3;
INSERT INTO clicks VALUES (4, 2, 'shop', '2026-01-02T07:00:00');
"""

# --- rows: filters, projections, values -----------------------------------------------------------------------------


@view(key=["order_id"])
def filtered(orders: Any) -> Any:
    """Orders that cost something."""
    return orders.filter((orders.amount > 5) & ~orders.product.isnull()).select("order_id", twice=orders.amount * 2)


@view
def numbers(orders: Any) -> Any:
    o = orders
    return o.select(
        "order_id",
        half=o.pieces / 2,
        floors=o.pieces // 2,
        rest=o.pieces % 3,
        minus=-o.pieces,
        size=o.score.abs(),
        up=o.score.ceil(),
        down=o.score.floor(),
        root=o.score.abs().sqrt(),
        power=o.score**2,
        ten=(o.amount + 1).log10(),
        two=(o.score.abs() + 1).log2(),
        natural=(o.score.abs() + 1).ln(),
        shifted=o.score + 0.5,
        whole=o.score.abs().round(1),
        sign=o.score.sign(),
        most=ibis.greatest(o.score, 1.0),
        least=ibis.least(o.score, 1.0),
        grown=(o.score / 10).exp(),
    ).filter(_.order_id != 4)


@view
def without_tags(orders: Any) -> Any:
    return orders.drop("tags")


@view
def texts(orders: Any) -> Any:
    p = orders.product
    return orders.select(
        "order_id",
        upper=p.upper(),
        lower=p.lower(),
        length=p.length(),
        bare=p.strip(),
        part=p.substr(1, 2),
        rest=p.substr(2),
        holds=p.contains("e"),
        begins=p.startswith("l"),
        ends=p.endswith("k"),
        like=p.like("%ee%"),
        ilike=p.ilike("LE%"),
        found=p.re_search("^[al]"),
        replaced=p.replace("e", "ee"),
        joined=p + "-" + p,
        reversed=p.reverse(),
        last=p.right(2),
        again=p.repeat(2),
        parts=p.split("e"),
        quoted=p + ibis.literal("it's"),
    )


@view
def choices(orders: Any) -> Any:
    o = orders
    return o.select(
        "order_id",
        size=ibis.cases((o.amount > 50, "large"), (o.amount > 5, "middle"), else_="small"),
        of=o.product.cases(("leek", "green"), ("apple", "red"), else_=None),
        known=o.product.fill_null("none"),
        first=ibis.coalesce(o.product, o.amount.cast("string"), "none"),
        no_leek=o.product.nullif("leek"),
        either=(o.amount > 50).ifelse("yes", "no"),
        one_of=o.product.isin(["leek", "pear"]),
        between=o.amount.between(1, 10),
        same=o.product.identical_to("leek"),
        differs=o.product != "leek",
        some=(o.pieces > 2) | (o.score < 0),
        both=(o.pieces <= 2) & o.product.notnull(),
        as_text=o.pieces.cast("string"),
        as_number=o.pieces.cast("string").try_cast("int64"),
        as_decimal=o.pieces.cast("decimal(12, 2)"),
    )


@view
def times(orders: Any) -> Any:
    o = orders
    return o.select(
        "order_id",
        year=o.at.year(),
        quarter=o.at.quarter(),
        month=o.at.month(),
        of_month=o.at.day(),
        of_year=o.at.day_of_year(),
        of_week=o.at.day_of_week.index(),
        hour=o.at.hour(),
        minute=o.at.minute(),
        second=o.at.second(),
        date=o.at.date(),
        began=o.at.truncate("M"),
        week=o.at.truncate("W"),
        day_month=o.day.truncate("M"),
        later=o.at + ibis.interval(hours=2),
        earlier=o.at - ibis.interval(days=3),
        yesterday=o.day - ibis.interval(days=1),
        tomorrow=o.day + ibis.interval(days=1),
        hours=o.at.delta(ibis.timestamp("2026-01-01 00:00:00"), unit="hour"),
        days=o.day.delta(ibis.date("2026-01-01"), unit="day"),
        recent=o.at > ibis.timestamp("2026-01-01 00:00:00"),
        since=o.day >= ibis.date(2026, 1, 1),
    )


@view
def nested(orders: Any) -> Any:
    o = orders
    return o.select(
        "order_id", city=o.place.city, count=o.tags.length(), has=o.tags.contains("a"), two=ibis.array([o.pieces, 7])
    )


@view
def tags_of(orders: Any) -> Any:
    return orders.select("order_id", tag=orders.tags.unnest())


# --- aggregates -----------------------------------------------------------------------------------------------------


@view(key=["product"])
def totals(orders: Any) -> Any:
    """What was sold of each product."""
    return orders.group_by("product").agg(
        n=_.count(),
        priced=_.amount.count(),
        total=_.amount.sum(),
        pieces=_.pieces.sum(),
        mean=_.score.mean(),
        low=_.amount.min(),
        high=_.at.max(),
        buyers=_.customer_id.nunique(),
        large=_.count(where=_.amount > 5),
        good=_.amount.sum(where=_.score > 1),
        every=(_.amount > 1).all(),
        some=(_.amount > 50).any(),
    )


@view
def spread(orders: Any) -> Any:
    return orders.group_by("customer_id").agg(
        sd=_.score.std(),
        sd_all=_.score.std(how="pop"),
        variance=_.score.var(),
        middle=_.score.median(),
    )


@view
def grand(orders: Any) -> Any:
    return orders.agg(n=_.count(), total=_.amount.sum())


@view
def large_groups(orders: Any) -> Any:
    return orders.group_by("product").agg(n=_.count()).filter(_.n > 1)


@view
def by_day(orders: Any) -> Any:
    return orders.group_by(month=orders.at.truncate("M"), cheap=orders.amount < 10).agg(total=_.amount.sum())


@view
def quarters_of_hours(clicks: Any) -> Any:
    return clicks.group_by(began=clicks.seen.bucket(minutes=15), page=_.page).agg(n=_.count())


@view
def different(orders: Any) -> Any:
    return orders.select("product", "customer_id").distinct()


# --- joins, sets, subqueries ----------------------------------------------------------------------------------------


@view(key=["customer"])
def largest(orders: Any, customers: Any) -> Any:
    """The largest order of each customer."""
    return orders.join(customers, "customer_id").group_by("customer").agg(largest=_.amount.max())


@view
def all_customers(customers: Any, orders: Any) -> Any:
    joined = customers.left_join(orders, customers.customer_id == orders.customer_id)
    return joined.select(customers.customer_id, customers.customer, orders.order_id, orders.amount)


@view
def everything(customers: Any, orders: Any) -> Any:
    joined = customers.outer_join(orders, customers.customer_id == orders.customer_id)
    return joined.select(customer=customers.customer, order=orders.order_id)


@view
def buyers(customers: Any, orders: Any) -> Any:
    return customers.semi_join(orders, "customer_id")


@view
def no_buyers(customers: Any, orders: Any) -> Any:
    return customers.anti_join(orders, "customer_id")


@view
def pairs(orders: Any) -> Any:
    other = orders.view()
    same = orders.join(other, orders.customer_id == other.customer_id)
    return same.filter(orders.order_id < other.order_id).select(one=orders.order_id, two=other.order_id)


@view
def of_buyers(orders: Any, customers: Any) -> Any:
    italian = customers.filter(customers.country == "it")
    return orders.filter(orders.customer_id.isin(italian.customer_id)).select("order_id", "product")


@view
def above_mean(orders: Any) -> Any:
    return orders.filter(orders.amount > orders.amount.mean()).select("order_id", "amount")


@view
def names(orders: Any, clicks: Any) -> Any:
    return ibis.union(orders.select(name="product"), clicks.select(name="page"))


@view
def ids(orders: Any, clicks: Any) -> Any:
    return ibis.intersect(orders.select(id="customer_id"), clicks.select(id="customer_id"))


@view
def ids_without(orders: Any, clicks: Any) -> Any:
    return ibis.difference(orders.select(id="customer_id"), clicks.select(id="customer_id"))


# --- order ----------------------------------------------------------------------------------------------------------


@view
def top(orders: Any) -> Any:
    return orders.order_by(ibis.desc("amount"), "order_id").limit(3).select("order_id", "amount")


@view
def nulls_last(orders: Any) -> Any:
    return orders.order_by("amount", "order_id").limit(3).select("order_id", "amount")


@view
def newest(orders: Any) -> Any:
    numbered = orders.mutate(
        place=ibis.row_number().over(group_by="customer_id", order_by=[ibis.desc("at"), "order_id"])
    )
    return numbered.filter(numbered.place == 0).select("order_id", "customer_id", "at")


@view
def running(orders: Any) -> Any:
    by = {"group_by": "customer_id", "order_by": "order_id"}
    return orders.select(
        "order_id",
        before=orders.amount.lag().over(**by),
        after=orders.amount.lead(1, 0).over(**by),
        so_far=orders.amount.sum().over(**by, rows=(None, 0)),
        around=orders.pieces.sum().over(**by, rows=(1, 1)),
        all=orders.amount.sum().over(group_by="customer_id"),
        rank=ibis.rank().over(**by),
        dense=ibis.dense_rank().over(**by),
        percent=ibis.percent_rank().over(**by),
        cumulated=ibis.cume_dist().over(**by),
    )


@view
def shares(orders: Any) -> Any:
    """One part that is read twice, which becomes a WITH."""
    sums = orders.group_by("product").agg(total=_.amount.sum())
    best = sums.agg(best=_.total.max())
    return sums.cross_join(best).mutate(lacks=_.best - _.total).drop("best")


@view
def with_clicks(customers: Any, clicks: Any) -> Any:
    return customers.filter((customers.customer_id == clicks.customer_id).any())


# --- views over views -----------------------------------------------------------------------------------------------


@view(name="countries", owner="team:shop", tags={"domain": "shop"}, freshness="5 seconds")
def of_countries(largest: Any, customers: Any, smallest: int = 10) -> Any:
    """Countries whose customers order much.

    A view over another one.
    """
    much = largest.filter(largest.largest >= smallest)
    return much.join(customers, "customer").group_by("country").agg(n=_.count())


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def initcap(text: str) -> str:  # type: ignore[empty-body]
    """A function of the language that Ibis has no operation for."""


@view
def with_function(customers: Any) -> Any:
    return customers.select("customer_id", name=initcap(customers.customer))
