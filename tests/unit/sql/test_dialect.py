"""The dialect: text -> tree -> text is stable, names fold, types read back."""

from __future__ import annotations

import pytest
from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SqlSyntaxError, TypeMismatch, UnknownName
from strandline.jobs.sql.dialect import needs_quotes, position_of, quote, sql_of
from strandline.jobs.sql.from_text import data_type, parse_type, type_of
from tests.support.parsed import parse_expression, parse_select

EXPRESSIONS = [
    "a + b * c - d / e % f",
    "(a + b) * c",
    "-a",
    "a || 'it''s' || b",
    "a->b->c[1]",
    "m['key']->x",
    "CASE WHEN a > 1 THEN 'x' ELSE 'y' END",
    "CASE a WHEN 1 THEN 2 END",
    "CAST(a AS DECIMAL(4, 2))",
    "TRY_CAST(a AS TIMESTAMP)",
    "STRUCT(a := 1, b := 'x')",
    "MAP('k' := v, 'j' := 2)",
    "ARRAY[1, 2, a]",
    "a BETWEEN 1 AND 2 AND b IN (1, 2) OR NOT c LIKE 'x%'",
    "a IS NULL OR b IS NOT NULL",
    "COUNT(*)",
    "SUM(a) FILTER(WHERE b > 1)",
    "CONCAT(UCASE(a), LEFT(b, 2))",
    "TRUE AND FALSE",
    "1.5 + 1e3",
    "`Quoted Name` = `select`",
    "a LIKE '10!%' ESCAPE '!'",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_written_as_it_was_read(text: str) -> None:
    assert sql_of(parse_expression(text)) == text
    assert parse_expression(sql_of(parse_expression(text))) == parse_expression(text)


def test_names_fold_to_lower_case_unless_quoted() -> None:
    assert sql_of(parse_expression('Area + `Area` + "AREA" + "plain"')) == "area + `Area` + `AREA` + plain"


def test_function_names_fold_to_upper_case() -> None:
    assert sql_of(parse_expression("ucase(Lcase(a))")) == "UCASE(LCASE(a))"


def test_words_of_other_dialects_are_free_as_names() -> None:
    """Only the words of the language are reserved: format, comment, show and the like name columns every day."""
    for name in ("format", "comment", "show", "execute", "key", "value", "window_start", "rows", "partition", "index"):
        node = parse_expression(name)
        assert isinstance(node, exp.Column)
        assert node.name == name


def test_a_reserved_word_is_quoted_when_it_is_a_name() -> None:
    assert quote("date") == "`date`"
    assert needs_quotes("Area")
    assert not needs_quotes("area_2")
    assert parse_expression(quote("we`ird")).name == "we`ird"


def test_comments_are_passed_over() -> None:
    assert sql_of(parse_expression("a -- the first\n + /* and */ b")) == "a + b"


def test_positions_point_at_the_beginning_of_a_name() -> None:
    tree = parse_expression("1 +\n  area")
    column = tree.find(exp.Column)
    assert column is not None
    assert position_of(column) == (2, 3)


def test_a_select_reads_back() -> None:
    text = "SELECT a, SUM(b) AS x FROM s WHERE c > 1 GROUP BY a, d + 1 HAVING COUNT(*) > 1"
    assert sql_of(parse_select(text)) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT 'it'\n  's' AS a", "SELECT 'its' AS a"),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' HOUR)) AS w",
            "SELECT * FROM TUMBLE(s, at, INTERVAL '1' HOUR) AS w",
        ),
        (
            "SELECT * FROM LATERAL TABLE(HOP(TABLE s, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
            "SELECT * FROM HOP(s, at, INTERVAL '1' HOUR, INTERVAL '2' HOUR)",
        ),
        ("SELECT ARRAY(SELECT a FROM s ORDER BY b) AS x", "SELECT (SELECT ARRAY_AGG(a ORDER BY b) FROM s) AS x"),
        (
            "SELECT ARRAY(SELECT a AS c FROM s ORDER BY c, b DESC LIMIT 2) AS x",
            "SELECT (SELECT ARRAY_AGG(collected.collected ORDER BY collected.collected, collected.collected1 DESC)"
            " FROM (SELECT a AS collected, b AS collected1 FROM s ORDER BY a, b DESC LIMIT 2) AS collected) AS x",
        ),
        (
            "SELECT ARRAY(SELECT a FROM s UNION SELECT collected FROM u) AS x",
            "SELECT (SELECT ARRAY_AGG(collected.collected_) FROM (SELECT a FROM s UNION SELECT collected FROM u)"
            " AS collected(collected_)) AS x",
        ),
    ],
)
def test_other_spellings_are_read_as_those_of_the_language(text: str, meant: str) -> None:
    assert sql_of(parse_select(text)) == sql_of(parse_select(meant))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s WHERE a IN ('x' 'y')",
        "SELECT ARRAY(SELECT a, b FROM s) AS x",
        "SELECT ARRAY(SELECT * FROM s) AS x",
        "SELECT ARRAY(SELECT DISTINCT a FROM s ORDER BY b) AS x",
    ],
)
def test_what_could_be_meant_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match=r"side by side|expected one column|ordered by its column"):
        parse_select(text)


@pytest.mark.parametrize(
    "text", ["a +", "(a", "CASE WHEN a THEN", "'open", "a -> +", "a b", "CAST(a)", "/* open", "ARRAY[1"]
)
def test_broken_text_is_a_syntax_error_with_a_place(text: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse_expression(text)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "text", ["TRANSFORM(a, x => x + 1)", "REDUCE(a, 0, (s, x) => s + x->b)", "FILTER(a, x => x > b)"]
)
def test_lambdas_are_written_as_they_were_read(text: str) -> None:
    assert sql_of(parse_expression(text)) == text


TYPES = [
    (t.BOOLEAN, "boolean"),
    (t.INT, "INTEGER"),
    (t.BIGINT, "BigInt"),
    (t.DOUBLE, "DOUBLE"),
    (t.VARCHAR, "STRING"),
    (t.VARCHAR, "VARCHAR"),
    (t.BYTES, "BYTES"),
    (t.DATE, "DATE"),
    (t.TIME, "TIME"),
    (t.TIMESTAMP, "TIMESTAMP"),
    (t.decimal(10, 2), "DECIMAL(10,2)"),
    (t.decimal(9, 0), "DECIMAL(9)"),
    (t.array(t.array(t.INT)), "ARRAY<ARRAY<INT>>"),
    (t.map_of(t.VARCHAR, t.decimal(4, 1)), "MAP<STRING, DECIMAL(4, 1)>"),
    (t.struct(("a", t.INT), ("Date", t.DATE)), "STRUCT<A INT, `Date` DATE>"),
    (t.struct(("date", t.DATE), ("m", t.map_of(t.VARCHAR, t.INT))), "STRUCT<date DATE, m MAP<STRING, INT>>"),
]


@pytest.mark.parametrize(("kind", "text"), TYPES)
def test_types_read_and_read_back(kind: t.SqlType, text: str) -> None:
    assert parse_type(text) == kind
    assert parse_type(str(kind)) == kind
    assert type_of(data_type(kind)) == kind


def test_an_unknown_type_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="INTEGR") as caught:
        parse_type("INTEGR")
    assert "'INT'" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "instead"), [("JSONB", "VARCHAR"), ("INTERVAL", "EXTRACT"), ("ROW(a INT)", "STRUCT"), ("UUID", "VARCHAR")]
)
def test_a_type_that_the_language_lacks_says_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(UnknownName, match="there is no type") as caught:
        parse_type(text)
    assert instead in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("DATETIME", t.TIMESTAMP), ("CHARACTER VARYING", t.VARCHAR), ("LONG", t.BIGINT), ("TIMESTAMP_NTZ", t.TIMESTAMP)],
)
def test_names_of_other_dialects_mean_the_type_that_holds_their_values(text: str, kind: t.SqlType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize("text", ["VARCHAR(10)", "DECIMAL(50, 2)", "DECIMAL(4, 5)", "ARRAY", "MAP<INT>"])
def test_wrong_parameters_of_a_type_are_refused(text: str) -> None:
    with pytest.raises(TypeMismatch, match="not a type"):
        parse_type(text)
