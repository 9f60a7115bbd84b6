"""Windows of time of RisingWave's suite: `e2e_test/streaming` of risingwavelabs/risingwave at 448c6570 (Apache License
2.0)."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.outside.cases import Case, View, moment, numbered, shown


def _on(day: str, time: str) -> datetime:
    return moment(f"{day}T{time}")


def _new_year(time: str) -> datetime:
    return _on("2022-01-01", time)


_EVENTS = [
    (1, 1, 4, _new_year("10:00")),
    (2, 3, 3, _new_year("10:05")),
    (3, 2, 2, _new_year("10:14")),
    (4, 1, 1, _new_year("10:22")),
    (5, 3, 5, _new_year("10:33")),
    (6, 2, 7, _new_year("10:42")),
    (7, 1, 6, _new_year("10:51")),
    (8, 3, 8, _new_year("11:02")),
]
_LATER = [
    (9, 1, 4, _on("2022-01-02", "10:00")),
    (10, 3, 3, _on("2022-01-03", "10:05")),
    (11, 2, 2, _on("2022-01-04", "10:14")),
    (12, 1, 1, _on("2022-01-05", "10:22")),
]
_HALF_HOUR = timedelta(minutes=30)
_HOP = "HOP(t1, created_at, INTERVAL '15' MINUTE, INTERVAL '30' MINUTE)"
_DAYS = {day: _on(day, "00:00") for day in ("2021-12-31", *(f"2022-01-0{n}" for n in range(1, 6)))}


def _hops(row_id: int, uid: int, _: int, at: datetime) -> list[tuple[object, ...]]:
    quarter = at - timedelta(minutes=at.minute % 15)
    return [(row_id, uid, begin, begin + _HALF_HOUR) for begin in (quarter - timedelta(minutes=15), quarter)]


_BIDS = (
    *[(5, 4, "A", 1), (6, 4, "C", 2), (7, 2, "G", 1), (8, 2, "B", 3), (9, 5, "D", 4)],
    *[(11, 2, "B", 3), (13, 1, "E", 1), (15, 3, "H", 2), (17, 6, "F", 5)],
)
_BID_ROWS = [
    (number, _on("2020-04-15", f"08:{minute:02}"), price, item, f"supplier{supplier}")
    for number, (minute, price, item, supplier) in enumerate(_BIDS)
]
_EIGHT, _TEN_PAST = _on("2020-04-15", "08:00"), _on("2020-04-15", "08:10")

CASES = (
    Case(
        "time_window.slt",
        "CREATE TABLE t1 (row_id INT PRIMARY KEY, uid INT, v INT, created_at TIMESTAMP);",
        ({"t1": _EVENTS}, {"t1": _LATER}),
        {
            "mv_tumble_agg_1": shown(
                """SELECT SUM(v) AS sum_v, window_start FROM TUMBLE(t1, created_at, INTERVAL '30' MINUTE)
                GROUP BY window_start""",
                (10, _new_year("10:00")),
                (18, _new_year("10:30")),
                (8, _new_year("11:00")),
            ),
            "mv_hop": shown(
                f"SELECT row_id, uid, window_start, window_end FROM {_HOP}",
                *[row for event in _EVENTS for row in _hops(*event)],
            ),
            "mv_hop_agg_1": shown(
                f"SELECT SUM(v) AS sum_v, window_start FROM {_HOP} GROUP BY window_start",
                (9, _new_year("09:45")),
                (10, _new_year("10:00")),
                (13, _new_year("10:15")),
                (18, _new_year("10:30")),
                (14, _new_year("10:45")),
                (8, _new_year("11:00")),
            ),
            "mv_hop_agg_3": shown(
                """SELECT uid, SUM(v) AS sum_v, window_start
                FROM HOP(t1, created_at, INTERVAL '1' DAY, INTERVAL '2' DAY) GROUP BY window_start, uid""",
                *[(1, 11, _DAYS["2021-12-31"]), (2, 9, _DAYS["2021-12-31"]), (3, 16, _DAYS["2021-12-31"])],
                *[(1, 15, _DAYS["2022-01-01"]), (2, 9, _DAYS["2022-01-01"]), (3, 16, _DAYS["2022-01-01"])],
                *[(1, 4, _DAYS["2022-01-02"]), (3, 3, _DAYS["2022-01-02"]), (2, 2, _DAYS["2022-01-03"])],
                *[(3, 3, _DAYS["2022-01-03"]), (1, 1, _DAYS["2022-01-04"]), (2, 2, _DAYS["2022-01-04"])],
                (1, 1, _DAYS["2022-01-05"]),
                after=1,
            ),
        },
    ),
    Case(
        "time_window_join.slt",
        """CREATE TABLE left_table (row_id INT PRIMARY KEY, row_time TIMESTAMP, num INT, id VARCHAR);
        CREATE TABLE right_table (row_id INT PRIMARY KEY, row_time TIMESTAMP, num INT, id VARCHAR);""",
        (
            {
                side: numbered(*[(_on("2020-04-15", f"12:0{minute}"), num, id_) for minute, num, id_ in rows])
                for side, rows in (
                    ("left_table", ((2, 1, "L1"), (6, 2, "L2"), (3, 3, "L3"))),
                    ("right_table", ((1, 2, "R2"), (4, 3, "R3"), (5, 4, "R4"))),
                )
            },
        ),
        {
            "mv_window_join": shown(
                """SELECT l.num AS l_num, l.id AS l_id, r.num AS r_num, r.id AS r_id,
                COALESCE(l.window_start, r.window_start) AS begins
                FROM TUMBLE(left_table, row_time, INTERVAL '5' MINUTE) AS l
                FULL JOIN TUMBLE(right_table, row_time, INTERVAL '5' MINUTE) AS r
                ON l.num = r.num AND l.window_start = r.window_start AND l.window_end = r.window_end""",
                (1, "L1", None, None, _on("2020-04-15", "12:00")),
                (2, "L2", None, None, _on("2020-04-15", "12:05")),
                (3, "L3", 3, "R3", _on("2020-04-15", "12:00")),
                (None, None, 2, "R2", _on("2020-04-15", "12:00")),
                (None, None, 4, "R4", _on("2020-04-15", "12:05")),
            )
        },
    ),
    Case(
        "bug_fixes/hop_window_update_10495.slt",
        "CREATE TABLE t1 (k INT PRIMARY KEY, ts TIMESTAMP);",
        ({"t1": [(1, _new_year("10:15"))]}, {"t1": [(1, _new_year("10:25"))]}),
        {
            "mv": View(
                "SELECT k, window_start FROM HOP(t1, ts, INTERVAL '10' MINUTE, INTERVAL '30' MINUTE)",
                {
                    0: [(1, _new_year(begin)) for begin in ("09:50", "10:00", "10:10")],
                    1: [(1, _new_year(begin)) for begin in ("10:00", "10:10", "10:20")],
                },
            )
        },
    ),
    Case(
        "group_top_n/main.slt: window top-n",
        "CREATE TABLE bid (id INT PRIMARY KEY, bidtime TIMESTAMP, price BIGINT, item VARCHAR, supplier_id VARCHAR);",
        ({"bid": _BID_ROWS},),
        {
            "top_items": shown(
                """SELECT window_start, item, price FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS nth
                FROM TUMBLE(bid, bidtime, INTERVAL '10' MINUTE)) r WHERE nth <= 3""",
                *[(_EIGHT, "D", 5), (_EIGHT, "A", 4), (_EIGHT, "C", 4)],
                *[(_TEN_PAST, "F", 6), (_TEN_PAST, "H", 3), (_TEN_PAST, "B", 2)],
            ),
            "top_suppliers": shown(
                """SELECT window_start, supplier_id, total, cnt FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC) AS nth FROM (
                SELECT window_start, window_end, supplier_id, SUM(price) AS total, COUNT(*) AS cnt
                FROM TUMBLE(bid, bidtime, INTERVAL '10' MINUTE) GROUP BY window_start, window_end, supplier_id) s
                ) r WHERE nth <= 3""",
                *[(_EIGHT, "supplier1", 6, 2), (_EIGHT, "supplier4", 5, 1), (_EIGHT, "supplier2", 4, 1)],
                *[(_TEN_PAST, "supplier5", 6, 1), (_TEN_PAST, "supplier2", 3, 1), (_TEN_PAST, "supplier3", 2, 1)],
            ),
        },
    ),
)
