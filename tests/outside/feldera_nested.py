"""Arrays, maps, rows and times of Feldera's suite: `python/tests/runtime_aggtest` of feldera/feldera at 5c7931d0
(MIT License)."""

from __future__ import annotations

from datetime import date

from tests.outside.cases import Case, moment, numbered, shown

CASES = (
    Case(
        "complex_type_tests: test_arr_unnest",
        "CREATE TABLE arr_unnest_tbl (id INT PRIMARY KEY, c1_arr ARRAY<INT>, c2_arr ARRAY<INT>);",
        ({"arr_unnest_tbl": [(0, [1, 2, None], [4, 5, None]), (1, [None, None], [None] * 3), (2, None, [7, 8])]},),
        {
            "arr_unnest_int1": shown(
                "SELECT id, EXPLODE(c1_arr) + 1 AS c1 FROM arr_unnest_tbl",
                *[(0, 2), (0, 3), (0, None), (1, None), (1, None)],
            ),
            "arr_unnest_int2": shown(
                "SELECT id, EXPLODE(c2_arr) + 1 AS c2 FROM arr_unnest_tbl",
                *[(0, 5), (0, 6), (0, None), (1, None), (1, None), (1, None), (2, 8), (2, 9)],
            ),
        },
    ),
    Case(
        "complex_type_tests: test_arr",
        """CREATE TABLE array_int_var_tbl (
        id INT PRIMARY KEY, c1_arr ARRAY<INT>, c2_arr ARRAY<INT>, c3_arr ARRAY<VARCHAR>, c4_arr ARRAY<VARCHAR>);""",
        (
            {
                "array_int_var_tbl": [
                    (0, [1, 2, None], [4, 5, 6], ["Ciao", None], ["Hello", "Hi"]),
                    (1, [None], [7, 8, 9], [None], ["Bye"]),
                ]
            },
        ),
        {
            "arr_field_access": shown(
                """SELECT id, c1_arr[1] AS c11, c1_arr[3] AS c13, c2_arr[1] AS c21, c2_arr[2] AS c22, c3_arr[1] AS c31,
                c4_arr[2] AS c42 FROM array_int_var_tbl""",
                (0, 1, None, 4, 5, "Ciao", "Hi"),
                (1, None, None, 7, 8, None, None),
            ),
            "arr_unnest_varchar": shown(
                "SELECT id, EXPLODE(c3_arr) AS c3_val FROM array_int_var_tbl", (0, "Ciao"), (0, None), (1, None)
            ),
        },
    ),
    Case(
        "complex_type_tests: test_arr_of_row",
        """CREATE TABLE arr_of_row_tbl (
        id INT PRIMARY KEY, c1_arr ARRAY<STRUCT<i1 INT, v1 VARCHAR>>, c2_arr ARRAY<STRUCT<i2 INT, v2 VARCHAR>>);""",
        (
            {
                "arr_of_row_tbl": [
                    (0, [{"i1": 1, "v1": None}, {"i1": 2, "v1": "hello"}], None),
                    (
                        1,
                        [{"i1": 3, "v1": "bye"}, {"i1": 4, "v1": "adios"}],
                        [{"i2": None, "v2": "hi"}, {"i2": 3, "v2": "ciao"}, None],
                    ),
                ]
            },
        ),
        {
            "arr_of_row_unnest": shown(
                "SELECT id, r->i1 AS i1, r->v1 AS v1 FROM (SELECT id, EXPLODE(c1_arr) AS r FROM arr_of_row_tbl) e",
                *[(0, 1, None), (0, 2, "hello"), (1, 3, "bye"), (1, 4, "adios")],
            ),
            "arr_of_row_elmnt_access": shown(
                "SELECT id, c1_arr[1]->v1 AS c12, c2_arr[2]->i2 AS c21 FROM arr_of_row_tbl",
                (0, None, None),
                (1, "bye", 3),
            ),
            "arr_of_row_arr_idx_outbound": shown(
                "SELECT id, c1_arr[5] AS c15, c1_arr[5]->i1 AS c151 FROM arr_of_row_tbl",
                (0, None, None),
                (1, None, None),
            ),
        },
    ),
    Case(
        "complex_type_tests: test_arr_of_arr",
        "CREATE TABLE arr_of_arr_tbl (id INT PRIMARY KEY, c1_arr ARRAY<ARRAY<INT>>, c3_arr ARRAY<ARRAY<VARCHAR>>);",
        (
            {
                "arr_of_arr_tbl": [
                    (0, [[1, 2, None], [None]], [["bye", None], ["ciao"], [None]]),
                    (1, [[4, 5], [8]], [[None], None]),
                ]
            },
        ),
        {
            "arr_of_arr_unnest_int": shown(
                "SELECT id, EXPLODE(c1_arr) AS c1_val FROM arr_of_arr_tbl",
                *[(0, [1, 2, None]), (0, [None]), (1, [4, 5]), (1, [8])],
            ),
            "arr_of_arr_unnest_element_int": shown(
                "SELECT id, EXPLODE(c1_arr[1]) AS c11 FROM arr_of_arr_tbl",
                *[(0, 1), (0, 2), (0, None), (1, 4), (1, 5)],
            ),
            "arr_of_arr_unnest_varchar": shown(
                "SELECT id, EXPLODE(c3_arr) AS c3_val FROM arr_of_arr_tbl",
                *[(0, ["bye", None]), (0, ["ciao"]), (0, [None]), (1, [None]), (1, None)],
            ),
            "arr_of_arr_elmnt_access_idx_outbound": shown(
                "SELECT c1_arr[4] AS c1_val4, c1_arr[1][4] AS c14 FROM arr_of_arr_tbl", (None, None), (None, None)
            ),
        },
    ),
    Case(
        "complex_type_tests: test_map",
        # The keys are texts, as a record in JSON has them.
        """CREATE TABLE map_int_var_tbl (
        id INT PRIMARY KEY, c1 MAP<VARCHAR, INT>, c2 MAP<VARCHAR, INT>, c3 MAP<VARCHAR, VARCHAR>);""",
        (
            {
                "map_int_var_tbl": [
                    (0, {"1": 22, "2": 44}, None, {"x": "hi", "y": "hello"}),
                    (1, {"1": 33, "2": 66}, {"1": None, "2": 88}, {"a": "bye", "b": None}),
                ]
            },
        ),
        {
            "map_access_int_by_key": shown(
                "SELECT id, c1['1'] AS val1, c2['2'] AS val2 FROM map_int_var_tbl", (0, 22, None), (1, 33, 88)
            ),
            "map_access_by_key": shown(
                "SELECT id, c3['x'] AS x, c3['a'] AS a FROM map_int_var_tbl", (0, "hi", None), (1, None, "bye")
            ),
        },
    ),
    Case(
        "complex_type_tests: test_row",
        """CREATE TABLE row_int_var_tbl (
        id INT PRIMARY KEY, c2 STRUCT<i1 INT, i2 INT>, c3 STRUCT<v1 VARCHAR, v2 VARCHAR>);""",
        (
            {
                "row_int_var_tbl": [
                    (0, {"i1": 22, "i2": 44}, {"v1": "hi", "v2": "bye"}),
                    (1, {"i1": 33, "i2": None}, {"v1": "bye", "v2": "adios"}),
                ]
            },
        ),
        {
            "row_field_access": shown(
                "SELECT id, c2->i1 AS i1, c2->i2 AS i2, c3->v1 AS v1, c3->v2 AS v2 FROM row_int_var_tbl",
                (0, 22, 44, "hi", "bye"),
                (1, 33, None, "bye", "adios"),
            )
        },
    ),
    Case(
        "aggregate_tests: test_row_max",
        "CREATE TABLE row_tbl (row_id INT PRIMARY KEY, id INT, c1 INT, c2 VARCHAR, c3 VARCHAR);",
        (
            {
                "row_tbl": numbered(
                    (0, 4, None, "adios"),
                    (0, 3, "ola", "ciao"),
                    (1, 7, "hi", "hiya"),
                    (1, 2, "elo", "ciao"),
                    (1, 2, "elo", "ciao"),
                )
            },
        ),
        {
            "count_col_emp_row": shown("SELECT COUNT(DISTINCT c1) AS n FROM row_tbl WHERE c1 < 0", (0,)),
            "distinct_rows": shown(
                "SELECT DISTINCT id, c1, c2, c3 FROM row_tbl",
                *[(0, 4, None, "adios"), (0, 3, "ola", "ciao"), (1, 7, "hi", "hiya"), (1, 2, "elo", "ciao")],
            ),
        },
    ),
    Case(
        "arithmetic_tests: test_date, test_timestamp",
        """CREATE TABLE date_tbl (id INT PRIMARY KEY, c1 DATE, c2 DATE);
        CREATE TABLE timestamp_tbl (id INT PRIMARY KEY, c1 TIMESTAMP, c2 TIMESTAMP);""",
        (
            {
                "date_tbl": [
                    (0, date(2024, 12, 5), date(2014, 11, 5)),
                    (1, date(2020, 6, 21), date(2023, 2, 26)),
                    (2, date(1969, 6, 21), date(1948, 12, 2)),
                ],
                "timestamp_tbl": [
                    (0, moment("2019-12-05T08:27"), moment("2014-11-05T12:45")),
                    (1, moment("2020-06-21T14:00"), moment("2023-02-26T18:00")),
                    (2, moment("1959-06-21T11:32"), moment("1948-12-02T09:15")),
                ],
            },
        ),
        {
            "date_minus_date_days": shown(
                "SELECT id, UNIX_DATE(c1) - UNIX_DATE(c2) AS days FROM date_tbl", (0, 3683), (1, -980), (2, 7506)
            ),
            "timestamp_minus_timestamp_seconds": shown(
                "SELECT id, (UNIX_TIMESTAMP(c1) - UNIX_TIMESTAMP(c2)) / 1000 AS seconds FROM timestamp_tbl",
                *[(0, 160342920), (1, -84686400), (2, 332907420)],
            ),
        },
    ),
)
