"""Functions and operators: what DuckDB computes from our text, and what is refused before it gets there."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from strandline.jobs.functions.registry import SCALARS
from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, SqlSyntaxError, TypeMismatch, UnknownName
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.rewrites import REWRITES
from strandline.jobs.query.expressions.scope import Scope
from strandline.jobs.sql.dialect import sql_of
from strandline.state_store.duckdb import elementary
from tests.support.function_cases import EXPECTED, elaborated, table
from tests.support.parsed import parse_expression, parse_select


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        elementary.register(connection)
        connection.register("cases", table())
        yield connection


@pytest.mark.parametrize("text", EXPECTED)
def test_duckdb_computes_what_is_written(duck: duckdb.DuckDBPyConnection, text: str) -> None:
    found = duck.execute(f"SELECT {lower(elaborated(text).expression, 'duckdb')} FROM cases WHERE nr = 1").fetchone()
    expected = EXPECTED[text]
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected,)


@pytest.mark.parametrize("text", EXPECTED)
def test_the_type_is_what_the_engine_gives(duck: duckdb.DuckDBPyConnection, text: str) -> None:
    """Casting the value to the inferred type changes nothing: types are not guesses."""
    typed = elaborated(text)
    value = lower(typed.expression, "duckdb")
    (same,) = duck.execute(
        f"SELECT bool_and(({value}) IS NOT DISTINCT FROM CAST(({value}) AS {typed.type.duckdb()})) FROM cases"
    ).fetchone() or (None,)
    assert same is True


@pytest.mark.parametrize("text", EXPECTED)
def test_elaborating_again_changes_nothing(text: str) -> None:
    """A view's stored query is elaborated; it is read again by every plan."""
    once = elaborated(text)
    again = elaborated(sql_of(once.expression))
    assert (sql_of(again.expression), again.type) == (sql_of(once.expression), once.type)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", t.INT),
        ("3000000000", t.BIGINT),
        ("1.50", t.decimal(3, 2)),
        ("0.5", t.decimal(1, 1)),
        ("1e3", t.DOUBLE),
        ("'a'", t.VARCHAR),
        ("NULL", t.NULL),
        ("i + b", t.BIGINT),
        ("i / 2", t.INT),
        ("m + m", t.decimal(11, 2)),
        ("m * m", t.decimal(21, 4)),
        ("m / i", t.decimal(21, 13)),
        ("m + d", t.DOUBLE),
        ("tags", t.array(t.VARCHAR)),
        ("ARRAY[1, 2.5]", t.array(t.decimal(11, 1))),
        ("who->name", t.VARCHAR),
        ("STRUCT(a := 1, `B` := s)", t.struct(("a", t.INT), ("B", t.VARCHAR))),
        ("MAP('a' := d, 'b' := 1)", t.map_of(t.VARCHAR, t.DOUBLE)),
        ("MAP(s := i)", t.map_of(t.VARCHAR, t.INT)),
        ("ROUND(d)", t.BIGINT),
        ("CEIL(m)", t.decimal(9, 0)),
        ("COALESCE(NULL, i)", t.INT),
    ],
)
def test_types(text: str, kind: t.SqlType) -> None:
    assert elaborated(text).type == kind


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("s > 1", TypeMismatch, "cannot compare VARCHAR with INT"),
        ("MAP('a' := ratings) = MAP('a' := ratings)", TypeMismatch, "cannot be compared"),
        ("i + s", TypeMismatch, r"\+ takes numbers"),
        ("s - s", TypeMismatch, "takes numbers"),
        ("-s", TypeMismatch, "takes a number"),
        ("i AND flag", TypeMismatch, "conditions"),
        ("NOT i", TypeMismatch, "conditions"),
        ("bytes || s", TypeMismatch, "no common type"),
        ("i LIKE 'x'", TypeMismatch, "LIKE takes VARCHAR"),
        ("CASE WHEN flag THEN 1 ELSE 'x' END", TypeMismatch, "'x' is not a number"),
        ("CASE WHEN flag THEN i ELSE s END", TypeMismatch, "no common type"),
        ("CASE WHEN i THEN 1 END", TypeMismatch, "conditions"),
        ("i IN (1, 'one')", TypeMismatch, "'one' is not a number"),
        ("flag IN (TRUE, 'perhaps')", TypeMismatch, "'perhaps' is not a BOOLEAN"),
        ("i IN (1, s)", TypeMismatch, "cannot compare INT with VARCHAR"),
        ("GREATEST(i, s)", TypeMismatch, "no common type"),
        ("DATEADD(at, 5, day)", TypeMismatch, "is a unit of time"),
        ("DATEADD(HOURS, 5, clock)", TypeMismatch, "argument 3 of DATEADD must be DATE"),
        ("TO_BYTES(s, 'latin')", InvalidQuery, "not an encoding"),
        ("FORMAT_DATE(day, 'yyyy[-MM]')", InvalidQuery, r"'\[' in the pattern"),
        ("ARRAY_SORT(tags, 'up')", InvalidQuery, "not an order"),
        ("GEO_DISTANCE(1, 2, 3, 4, 'feet')", InvalidQuery, "not a unit of distance"),
        ("FORMAT_DATE(day, 'yyyy-PP')", InvalidQuery, "'PP' in the pattern"),
        ("ARRAY_MAX(ARRAY[tags])", TypeMismatch, "no order"),
        ("DEREFERENCE(who, 'height')", UnknownName, "unknown field 'height'"),
        ("at > 'soon'", TypeMismatch, "'soon' is not a TIMESTAMP"),
        ("CAST(flag AS DATE)", TypeMismatch, "cannot be converted"),
        ("UCASE(i)", TypeMismatch, "argument 1 of UCASE must be VARCHAR, not INT"),
        ("SUBSTRING(s)", TypeMismatch, "2 to 3 arguments"),
        ("COALESCE(i, s)", TypeMismatch, "no common type"),
        ("who->height", UnknownName, "unknown field 'height'"),
        ("i->x", TypeMismatch, "reaches into a STRUCT"),
        ("i[1]", TypeMismatch, "has no elements"),
        ("tags['a']", TypeMismatch, "numbered by INT"),
        ("ratings[1]", TypeMismatch, "keys of ratings"),
        ("ARRAY[ROW('a', 2), STRUCT(t := 'a', len := 5)]", TypeMismatch, "no common type"),
        ("STRUCT(1)", InvalidQuery, "written STRUCT"),
        ("STRUCT(a := 1, a := 2)", InvalidQuery, "its own"),
        ("ROUND(d, i)", InvalidQuery, "must be a constant"),
        ("UCAS(s)", UnknownName, "unknown function 'UCAS'"),
        ("nope", UnknownName, "unknown column 'nope'"),
        ("x.i", UnknownName, "'x'"),
        ("TRANSFORM(tags, `a.b` => 1)", InvalidQuery, "no dot in its name"),
        ("LIST_AGGREGATE(tags, 'entropy')", NotSupported, "is not supported"),
        ("LIST_SUM(tags)", TypeMismatch, "takes an ARRAY of INT"),
        ("LIST_DISTINCT(tags, 1)", TypeMismatch, "takes 1 argument, not 2"),
        ("REGEXP_REPLACE(s, 'a', 'b', 'i')", NotSupported, "is not supported"),
        ("STRFTIME(at, '%Q')", InvalidQuery, "'%Q' in the pattern"),
        ("STRFTIME(at, s)", InvalidQuery, "constant pattern"),
        ("REGEXP_LIKE(s, '{}')", InvalidQuery, "no regular expression: a brace"),
        ("tags[1:2:3]", SqlSyntaxError, "without a step"),
        ("RAND()", InvalidQuery, "another value each time"),
        ("NOW()", InvalidQuery, "another value each time"),
        ("UNIX_TIMESTAMP()", InvalidQuery, "time of the clock"),
        ("rowtime", InvalidQuery, "have no ROWTIME"),
        ("COUNT(*)", InvalidQuery, "aggregate COUNT cannot stand here"),
        ("(SELECT 1)", NotSupported, "subquer"),
        ("i IN (SELECT i FROM x)", NotSupported, "a subquery cannot stand here"),
        ("SUM(i) OVER (PARTITION BY s)", InvalidQuery, "OVER"),
    ],
)
def test_what_means_nothing_is_refused(text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        elaborated(text)
    assert type(caught.value) is error


def test_a_fault_deep_inside_has_its_own_place() -> None:
    with pytest.raises(UnknownName) as caught:
        elaborated("i + 1 >\n  UCASE(nope)")
    assert (caught.value.line, caught.value.column) == (2, 9)


def test_the_nearest_function_is_proposed() -> None:
    with pytest.raises(UnknownName) as caught:
        elaborated("SUBSTRIN(s, 1)")
    assert "'SUBSTRING'" in str(caught.value.hint)


def test_every_function_has_a_case() -> None:
    """A function without a row in the table of cases is one whose engines nobody compared."""
    written = " ".join(EXPECTED)
    untested = {scalar.name for scalar in SCALARS.values() if not any(f"{n}(" in written for n in _names(scalar.name))}
    untested |= {name for name in REWRITES if f"{name}(" not in written}
    assert not untested


def _names(name: str) -> list[str]:
    return [alias for alias, scalar in SCALARS.items() if scalar.name == name]


def test_a_whole_select_is_lowered_with_its_names_quoted() -> None:
    query = parse_select("SELECT `Area`, SUM(a->b) AS x FROM s WHERE tags[1] = 'y' GROUP BY `Area`")
    assert lower(query, "duckdb") == (
        'SELECT "Area", SUM(("a")."b") AS "x" FROM "s" WHERE ("tags")[1] = \'y\' GROUP BY "Area"'
    )
    assert lower(query, "spark") == (
        "SELECT `Area`, SUM((`a`).`b`) AS `x` FROM `s` WHERE try_element_at(`tags`, 1) = 'y' GROUP BY `Area`"
    )


def test_rowtime_is_milliseconds_of_the_event() -> None:
    from strandline.jobs.model.tables import META_COLUMNS, Relation

    scope = Scope(Relation("s", (("a", t.INT), *META_COLUMNS), "append"), ("s",))
    found = infer(parse_expression("ROWTIME + rowoffset + ROWPARTITION"), scope)
    assert sql_of(found.expression) == "UNIX_TIMESTAMP(_timestamp) + _offset + _partition"
    assert found.type == t.BIGINT
