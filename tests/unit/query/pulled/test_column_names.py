"""The names of columns that nobody named: those of PostgreSQL (its `FigureColname`)."""

from __future__ import annotations

import pytest

from strandline.jobs.query.pulled.column_names import column_name
from strandline.jobs.sql.from_text import parse_query


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("COUNT(*)", "count"),
        ("t.a", "a"),
        ("(a)", "a"),
        ("a->b", "b"),
        ("x[1]", "x"),
        ("a::int", "a"),
        ("SUM(a)::int", "sum"),
        ("CAST(3.5 AS INT)", "int4"),
        ("'x'::text", "text"),
        ("1::decimal(5, 2)", "numeric"),
        ("(a + 1)::bigint", "int8"),
        ("DATE '2024-05-01'", "date"),
        ("TRUE", "bool"),
        ("a + 1", "?column?"),
        ("-a", "?column?"),
        ("1", "?column?"),
        ("NULL", "?column?"),
        ("a IS NULL", "?column?"),
        ("CASE WHEN a THEN 1 ELSE b END", "b"),
        ("CASE WHEN a THEN 1 ELSE 2 END", "case"),
        ("CASE WHEN a THEN 1 END", "case"),
        ("COALESCE(a, b)", "coalesce"),
        ("EXTRACT(year FROM a)", "extract"),
        ("ARRAY[1]", "array"),
        ("EXISTS (SELECT 1 FROM t)", "exists"),
        ("(SELECT MAX(x) FROM t)", "max"),
        ("(SELECT x AS y FROM t)", "y"),
        ("SUM(a) OVER (PARTITION BY b)", "sum"),
        ("COUNT(DISTINCT a) FILTER (WHERE b)", "count"),
    ],
)
def test_a_column_is_called_as_in_postgresql(item: str, name: str) -> None:
    (node,) = parse_query(f"SELECT {item} FROM t").selects
    assert column_name(node) == name
