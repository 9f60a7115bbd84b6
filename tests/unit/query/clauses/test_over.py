"""Functions OVER a partition: the columns they become, and those that cannot be."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.sql.dialect import sql_of
from tests.support.query_text import block, shown, sql


def test_functions_over_a_partition_become_plain_columns(catalog: Catalog) -> None:
    found = block(
        "SELECT id, RANK() OVER (PARTITION BY k ORDER BY v DESC) AS place,"
        " SUM(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) * 2 AS x"
        " FROM s WHERE v > 0 QUALIFY place <= 3 AND k <> 'a'",
        catalog,
    )
    assert shown(found.outputs) == ["id = s.id", "place = __w0", "x = __w1 * 2"]
    assert [sql_of(each) for each in found.partition] == ["s.k"]
    assert sql(found.qualify) == "__w0 <= 3 AND s.k <> 'a'"
    rank, total = found.analytic
    assert (rank.function, [(sql_of(n), down) for n, down, _ in rank.order], rank.frame) == (
        "RANK",
        [("s.v", True)],
        None,
    )
    assert (total.function, total.frame) == ("SUM", "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW")


def test_functions_over_groups_read_groups_and_calls(catalog: Catalog) -> None:
    found = block("SELECT k, DENSE_RANK() OVER (PARTITION BY k ORDER BY COUNT(*)) AS p FROM s GROUP BY k", catalog)
    (call,) = found.analytic
    assert [sql_of(node) for node, _, _ in call.order] == ["__a0"]
    assert [sql_of(each) for each in found.partition] == ["k"]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT LAG(v) OVER (PARTITION BY k) AS p FROM s", InvalidQuery, "needs an order"),
        (
            "SELECT LATEST_BY_OFFSET(v) OVER (PARTITION BY k) AS p FROM s",
            UnknownName,
            "window function 'LATEST_BY_OFFSET'",
        ),
        ("SELECT LAG(v, v) OVER (PARTITION BY k ORDER BY v) AS p FROM s", TypeMismatch, "whole number"),
        ("SELECT RANK(v) OVER (PARTITION BY k ORDER BY v) AS p FROM s", TypeMismatch, "takes 0 arguments"),
        *(
            (f"SELECT SUM(v) OVER (PARTITION BY k {order} {frame}) AS p FROM s", error, message)
            for order, frame, error, message in (
                ("", "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW", InvalidQuery, "GROUPS needs an order"),
                ("ORDER BY k", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", NotSupported, "not over VARCHAR"),
                ("ORDER BY v, id", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", NotSupported, "over INT, INT"),
                ("", "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING", NotSupported, "over nothing"),
                ("", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", InvalidQuery, "needs an order"),
                ("ORDER BY v", "ROWS BETWEEN CURRENT ROW AND 1 PRECEDING", InvalidQuery, "ends before"),
                ("ORDER BY v", "ROWS 1 FOLLOWING", InvalidQuery, "ends before"),
                ("ORDER BY v", "ROWS BETWEEN 3 FOLLOWING AND 2 FOLLOWING", InvalidQuery, "ends before"),
                ("ORDER BY v", "ROWS UNBOUNDED FOLLOWING", InvalidQuery, "ends before"),
                ("ORDER BY v", "ROWS BETWEEN 2147483648 PRECEDING AND CURRENT ROW", InvalidQuery, "2147483647 rows"),
            )
        ),
        *(
            (f"SELECT SUM(v) OVER (ORDER BY FROM_UNIXTIME(v) {frame}) AS p FROM s", error, message)
            for frame, error, message in (
                ("RANGE INTERVAL '1' MONTH PRECEDING", NotSupported, "no fixed length"),
                ("RANGE INTERVAL '-1' DAY PRECEDING", InvalidQuery, "from 0"),
                ("ROWS INTERVAL '1' DAY PRECEDING", InvalidQuery, "a number of rows"),
            )
        ),
        ("SELECT SUM(v) OVER (ORDER BY v RANGE INTERVAL '1' DAY PRECEDING) AS p FROM s", NotSupported, "over INT"),
        ("SELECT NTH_VALUE(v, 2) OVER (ORDER BY v GROUPS 1 PRECEDING) AS p FROM s", NotSupported, "NTH_VALUE"),
        ("SELECT SUM(v) OVER (ORDER BY v ROWS k PRECEDING) AS p FROM s", TypeMismatch, "over a whole number"),
        ("SELECT SUM(v) OVER (ORDER BY v RANGE k PRECEDING) AS p FROM s", TypeMismatch, "over a number"),
        ("SELECT SUM(v) OVER (ORDER BY k RANGE v PRECEDING) AS p FROM s", NotSupported, "not over VARCHAR"),
        ("SELECT SUM(v) OVER (ORDER BY v RANGE BETWEEN v PRECEDING AND 1 FOLLOWING) AS p FROM s", NotSupported, "one"),
        ("SELECT SUM(v) OVER (ORDER BY v ROWS -1 PRECEDING) AS p FROM s", InvalidQuery, "whole number of rows"),
        ("SELECT NTH_VALUE(v, 2) OVER (ROWS 1 PRECEDING EXCLUDE TIES) AS p FROM s", NotSupported, "NTH_VALUE"),
        ("SELECT COUNT(DISTINCT ARRAY[v]) OVER (PARTITION BY k) AS p FROM s", NotSupported, "COUNT.DISTINCT"),
        ("SELECT RANK(v ORDER BY v) OVER (PARTITION BY k) AS p FROM s", InvalidQuery, "RANK takes no ORDER BY"),
        ("SELECT k FROM s QUALIFY k > 'a'", InvalidQuery, "needs a function OVER"),
        ("SELECT k FROM s WHERE RANK() OVER (ORDER BY v) < 3", InvalidQuery, "OVER"),
    ],
)
def test_functions_over_partitions_that_cannot_be(
    catalog: Catalog, query: str, error: type[SqlError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        block(query, catalog)
    assert type(caught.value) is error
