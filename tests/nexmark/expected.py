"""What Nexmark's views must hold: each question asked once more, by hand, in DuckDB's own words.

The tables `person`, `auction`, `bid` and `side_input` are the rows as they are in the end.
"""

from __future__ import annotations

_WON = """
    SELECT a.id, a.category, a.seller, arg_max(b, row(b.price, -epoch_ms(b.date_time), -b.id)) AS best
    FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time >= a.date_time AND b.date_time <= a.expires
    GROUP BY ALL
"""
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_BIDS = ", ".join(["count(*)", *(f"count_if({rank})" for rank in _RANKS)])


def _users(column: str) -> str:
    """How many different values there are, in all and for each range of prices."""
    return ", ".join(f"count(DISTINCT CASE WHEN {rank} THEN {column} END)" for rank in ("TRUE", *_RANKS))


EXPECTED: dict[str, str] = {
    "q0": "SELECT id, auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT id, auction, bidder, price * 0.908::DECIMAL(4, 3), date_time, extra FROM bid",
    "q2": "SELECT id, auction, price FROM bid WHERE auction IN (SELECT 123 * n FROM range(10000) r(n))",
    "q3": """
        SELECT name, city, state, a.id FROM person p, auction a
        WHERE p.id = seller AND category = 10 AND (state = 'OR' OR state = 'ID' OR state = 'CA')""",
    "q4": f"SELECT category, avg(best.price) FROM ({_WON}) GROUP BY category",
    "q5": """
        WITH periods AS (
            SELECT n * 2000 AS starttime FROM range(
                (SELECT min(epoch_ms(date_time)) // 2000 - 5 FROM bid),
                (SELECT max(epoch_ms(date_time)) // 2000 + 1 FROM bid)
            ) r(n)
        ), counts AS (
            SELECT starttime, auction, count(*) AS num FROM periods, bid
            WHERE epoch_ms(date_time) >= starttime AND epoch_ms(date_time) < starttime + 10000 GROUP BY ALL
        )
        FROM counts QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
    "q6": f"""
        WITH sold AS (
            SELECT seller, id, best.price, row_number() OVER (PARTITION BY seller ORDER BY best.date_time, id) AS nth
            FROM ({_WON})
        )
        SELECT this.seller, this.id, avg(other.price) FROM sold this, sold other
        WHERE this.seller = other.seller AND other.nth BETWEEN this.nth - 9 AND this.nth GROUP BY ALL""",
    "q7": """
        SELECT id, auction, bidder, price, date_time, extra FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, date_time))""",
    "q8": """
        SELECT DISTINCT p.id, name, epoch_ms(p.date_time) // 10000 * 10000 FROM person p, auction a
        WHERE p.id = seller AND epoch_ms(p.date_time) // 10000 = epoch_ms(a.date_time) // 10000""",
    "q9": f"""
        SELECT w.id, a.item_name, a.initial_bid, a.reserve, a.expires, a.seller, a.category,
            best.id, best.bidder, best.price, best.date_time
        FROM ({_WON}) w JOIN auction a USING (id)""",
    "q10": """
        SELECT id, auction, bidder, price, date_time, extra, date_time::DATE::VARCHAR, strftime(date_time, '%H:%M')
        FROM bid""",
    "q11": """
        WITH gaps AS (
            SELECT bidder, ts, id,
                coalesce(ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts, id) > 10000, TRUE) AS opens
            FROM (SELECT bidder, id, epoch_ms(date_time) AS ts FROM bid)
        ), sessions AS (
            SELECT bidder, ts, sum(opens::INT) OVER (PARTITION BY bidder ORDER BY ts, id) AS nth FROM gaps
        )
        SELECT bidder, min(ts), max(ts), count(*) FROM sessions GROUP BY bidder, nth""",
    "q12": """
        SELECT bidder, epoch_ms(date_time) // 10000 * 10000 AS starttime, starttime + 10000, count(*)
        FROM bid GROUP BY ALL""",
    "q13": """
        SELECT id, auction, bidder, price, date_time, value FROM bid, side_input s WHERE auction % 10000 = s.key""",
    "q14": """
        SELECT id, auction, bidder, price * 0.908::DECIMAL(4, 3) AS euros,
            ['nightTime', 'otherTime', 'dayTime', 'otherTime', 'nightTime']
                [1 + (hour(date_time) > 6)::INT + (hour(date_time) > 7)::INT + (hour(date_time) > 18)::INT
                   + (hour(date_time) > 19)::INT],
            date_time, extra, len(list_filter(string_split(extra, ''), lambda c: c = 'c'))
        FROM bid WHERE euros > 1000000 AND euros < 50000000""",
    "q15": f"""
        SELECT date_time::DATE::VARCHAR AS day, {_BIDS}, {_users("bidder")}, {_users("auction")}
        FROM bid GROUP BY day""",
    "q16": f"""
        SELECT channel, date_time::DATE::VARCHAR AS day, strftime(max(date_time), '%H:%M'),
            {_BIDS}, {_users("bidder")}, {_users("auction")}
        FROM bid GROUP BY channel, day""",
    "q17": f"""
        SELECT auction, date_time::DATE::VARCHAR AS day, {_BIDS}, min(price), max(price), avg(price), sum(price)
        FROM bid GROUP BY auction, day""",
    "q18": """
        SELECT id, auction, bidder, price, channel, url, date_time, extra FROM bid b
        WHERE NOT EXISTS (
            FROM bid o WHERE o.bidder = b.bidder AND o.auction = b.auction AND (o.date_time, o.id) > (b.date_time, b.id)
        )""",
    "q19": """
        SELECT id, auction, bidder, price, channel, url, date_time, extra, 1 + (
            SELECT count(*) FROM bid o WHERE o.auction = b.auction AND (o.price, -o.id) > (b.price, -b.id)
        ) AS place
        FROM bid b WHERE place <= 10""",
    "q20": """
        SELECT b.id, b.auction, bidder, price, channel, url, b.date_time, b.extra,
            item_name, description, initial_bid, reserve, a.date_time, expires, seller, category
        FROM bid b, auction a WHERE a.id = b.auction AND a.category = 10""",
    "q21": """
        SELECT id, auction, bidder, price, channel, CASE
            WHEN channel LIKE 'channel-%' THEN string_split(url, '&channel_id=')[2]
            ELSE (list_position(['Apple', 'Google', 'Facebook', 'Baidu'], channel) - 1)::VARCHAR END AS channel_id
        FROM bid WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT id, auction, bidder, price, channel, parts[4], parts[5], parts[6]
        FROM (SELECT *, string_split(url, '/') AS parts FROM bid)""",
}
