"""Arroyo's suite: `crates/arroyo-sql-testing` of ArroyoSystems/arroyo at addb390a (Apache License 2.0).

Its input `impulse.json` is a counter that counts to 99, a step every 200 milliseconds; of `cars.json` here are the
first rows, with what the golden files have for them.
"""

from __future__ import annotations

import json
from datetime import timedelta

from tests.outside.cases import Case, View, moment, shown

_BEGIN = moment("2023-10-09T17:13:20")
_IMPULSES = [(_BEGIN + timedelta(milliseconds=200 * n), n) for n in range(100)]
_STREAM = "CREATE STREAM impulse (at TIMESTAMP, counter BIGINT) WITH (TIMESTAMP = 'at');"
_TABLE = "CREATE TABLE impulse (counter BIGINT PRIMARY KEY, at TIMESTAMP);"
_ROWS = [(n, at) for at, n in _IMPULSES]
_CARS = [
    (10, 155, "pickup", "Yerba Buena"),
    (11, 163, "pickup", "Portola"),
    (27, 184, "pickup", "FiDi"),
    (28, 122, "pickup", "Bayview"),
    (43, 158, "pickup", "Richmond"),
    (45, 156, "pickup", "Civic Center"),
]
_MODULO = "SELECT counter % 2 AS odd, COUNT(*) AS n FROM impulse WHERE counter < 3 GROUP BY counter % 2"


def _second(n: int) -> int:
    """Milliseconds of the whole second in which the counter is n."""
    return int(_BEGIN.timestamp() * 1000) + n // 5 * 1000


CASES = (
    Case(
        "aggregates, grouped_aggregates, filter_updating_aggregates",
        _TABLE,
        ({"impulse": _ROWS},),
        {
            "aggregates": shown(
                """SELECT MIN(counter) AS low, MAX(counter) AS high, SUM(counter) AS total, COUNT(*) AS n,
                AVG(counter) AS mean FROM impulse""",
                (0, 99, 4950, 100, 49.5),
            ),
            "grouped_aggregates": shown(
                """SELECT counter % 5 AS counter_mod, MIN(counter) AS low, MAX(counter) AS high, SUM(counter) AS total,
                COUNT(*) AS n, AVG(counter) AS mean FROM impulse GROUP BY counter % 5""",
                *[(n, n, 95 + n, 950 + 20 * n, 20, 47.5 + n) for n in range(5)],
            ),
            "filter_updating_aggregates": shown(
                "SELECT n FROM (SELECT COUNT(DISTINCT counter * 0) AS n FROM impulse) r WHERE n >= 1",
                (1,),
            ),
        },
    ),
    Case(
        "updating_inner_join, updating_left_join, updating_right_join, updating_full_join",
        _TABLE,
        ({"impulse": _ROWS},),
        {
            "updating_inner_join": shown(
                """SELECT a.counter AS left_count, b.counter AS right_count
                FROM impulse a JOIN (SELECT counter FROM impulse WHERE counter % 2 = 1) b ON a.counter = b.counter""",
                *[(n, n) for n in range(1, 100, 2)],
            ),
            "updating_left_join": shown(
                f"SELECT counter, odd, n FROM impulse LEFT JOIN ({_MODULO}) r ON counter = n WHERE counter < 3",
                *[(0, None, None), (1, 1, 1), (2, 0, 2)],
            ),
            "updating_right_join": shown(
                f"SELECT counter, odd, n FROM impulse RIGHT JOIN ({_MODULO}) r ON counter = n WHERE counter < 3",
                *[(1, 1, 1), (2, 0, 2)],
            ),
            "updating_full_join": shown(
                f"SELECT counter, odd, n FROM impulse FULL JOIN ({_MODULO}) r ON counter = n WHERE counter < 3",
                *[(0, None, None), (1, 1, 1), (2, 0, 2)],
            ),
        },
    ),
    Case(
        "sliding_window_end, union, unnest_in_view",
        _STREAM,
        ({"impulse": _IMPULSES},),
        {
            "sliding_window_end": shown(
                """SELECT window_end, COUNT(*) AS n, MIN(counter) AS low, MAX(counter) AS high
                FROM HOP(impulse, at, INTERVAL '2' SECOND, INTERVAL '10' SECOND) GROUP BY window_end""",
                *[
                    (
                        _BEGIN + timedelta(seconds=2 * k),
                        10 * min(k, 5, 15 - k),
                        max(0, 10 * k - 50),
                        min(10 * k, 100) - 1,
                    )
                    for k in range(1, 15)
                ],
            ),
            "union_all": shown(
                "SELECT counter, 'first' AS src FROM impulse UNION ALL SELECT counter, 'second' AS src FROM impulse",
                *[(n, source) for n in range(100) for source in ("first", "second")],
            ),
            "counters": View(
                """SELECT window_start, ARRAY_AGG(counter) AS counters FROM TUMBLE(impulse, at, INTERVAL '1' DAY)
                GROUP BY window_start""",
                {},
            ),
            "unnest_in_view": shown("SELECT EXPLODE(counters) AS counter FROM counters", *[(n,) for n in range(100)]),
        },
    ),
    Case(
        "session_window, global_session_window, offset_impulse_join",
        _STREAM,
        ({"impulse": _IMPULSES},),
        {
            # Arroyo's sessions end a gap after their last row; ours with it.
            "session_window": shown(
                """SELECT CASE WHEN counter % 10 = 0 THEN 0 ELSE counter END AS user_id, WINDOWSTART AS begins,
                WINDOWEND AS ends, COUNT(*) AS n FROM impulse WINDOW SESSION (20 SECONDS)
                GROUP BY CASE WHEN counter % 10 = 0 THEN 0 ELSE counter END""",
                *[(n, _second(0) + 200 * n, _second(0) + 200 * n, 1) for n in range(100) if n % 10],
                (0, _second(0), _second(0) + 18_000, 10),
            ),
            "global_session_window": shown(
                """SELECT counter * 0 AS one, WINDOWSTART AS begins, WINDOWEND AS ends, COUNT(*) AS n
                FROM impulse WINDOW SESSION (20 SECONDS) GROUP BY counter * 0""",
                (0, _second(0), _second(0) + 19_800, 100),
            ),
            "seconds": View(
                """SELECT counter, WINDOWSTART AS begins, COUNT(*) AS n FROM impulse WINDOW TUMBLING (SIZE 1 SECOND)
                GROUP BY counter""",
                {},
            ),
            "offset_impulse_join": shown(
                "SELECT a.begins AS begins, a.counter AS n FROM seconds a JOIN seconds b ON a.counter = b.counter",
                *[(_second(n), n) for n in range(100)],
            ),
        },
    ),
    Case(
        "json_operators, select_star",
        "CREATE TABLE cars (id INT PRIMARY KEY, value VARCHAR);",
        (
            {
                "cars": [
                    (
                        second,
                        json.dumps(
                            {
                                "timestamp": f"2023-09-18T14:23:{second}Z",
                                "driver_id": driver,
                                "event_type": event,
                                "location": location,
                            }
                        ),
                    )
                    for second, driver, event, location in _CARS
                ]
            },
        ),
        {
            # Arroyo gives JSON, "pickup" in quotes and the word null; ours is the text itself, and NULL.
            "json_operators": shown(
                """SELECT 'test' AS a, EXTRACTJSONFIELD(value, '$.driver_id') AS b,
                EXTRACTJSONFIELD(value, '$.event_type') AS c, EXTRACTJSONFIELD(value, '$.not_a_field') AS d
                FROM cars""",
                *[("test", str(driver), event, None) for _, driver, event, _ in _CARS],
            ),
            "select_star": shown(
                """SELECT CAST(EXTRACTJSONFIELD(value, '$.driver_id') AS BIGINT) AS driver_id,
                EXTRACTJSONFIELD(value, '$.event_type') AS event_type,
                EXTRACTJSONFIELD(value, '$.location') AS location,
                PARSE_TIMESTAMP(EXTRACTJSONFIELD(value, '$.timestamp'), 'yyyy-MM-dd''T''HH:mm:ssX') AS at
                FROM cars""",
                *[(driver, event, place, moment(f"2023-09-18T14:23:{at}")) for at, driver, event, place in _CARS],
            ),
        },
    ),
)
