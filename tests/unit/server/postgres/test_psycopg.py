"""psycopg against the running server: queries, parameters, cursors, transactions, errors."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.waiting import wait_until
from tests.unit.server.postgres.conftest import ALL_ROWS

Session = psycopg.Connection[Any]


def rows(session: Session, sql: str, *values: object, binary: bool = False) -> list[Any]:
    return session.execute(sql, values, binary=binary).fetchall()


def test_rows_of_a_view(session: Session) -> None:
    assert rows(session, "SELECT town, visits FROM by_town ORDER BY visits DESC, town LIMIT 2") == [
        ("Rome", 4),
        ("Oslo", 3),
    ]
    assert rows(session, 'SELECT t."town" FROM "public"."by_town" AS t WHERE public.t.visits = 1') == [("a/b ü",)]


@pytest.mark.parametrize("binary", [False, True])
def test_columns_of_every_type(session: Session, binary: bool) -> None:
    assert rows(session, "SELECT * FROM places", binary=binary) == [("Rome", {"hot": 1}, dt.time(9, 35, 0, 250_000))]


VALUES = [
    *(True, 1, -5, 1 << 40, 1.5, -1e300, Decimal("-1.50"), "it's; $1 --", "", b"\0\xff'", dt.date(2024, 5, 1)),
    *(dt.time(1, 2, 3, 4000), dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    *([1, 2], ["a", "b,c", 'd"e\\', "", "NULL"], None),
]


@pytest.mark.parametrize("way", ["%t", "%b"])
@pytest.mark.parametrize("value", VALUES)
def test_parameters_of_every_type_come_back(session: Session, value: object, way: str) -> None:
    # psycopg gives a text no type: alone it is one to us as well, in a list it needs its binary form to have one.
    if isinstance(value, str):
        way = "%t"
    elif isinstance(value, list):
        way = "%b"
    for binary in (False, True):
        assert rows(session, f"SELECT town, {way} AS given FROM by_town LIMIT 1", value, binary=binary)[0][1] == value


def test_a_parameter_without_a_type_has_that_of_the_column(session: Session) -> None:
    assert rows(session, "SELECT town FROM by_id WHERE id = %s", "5") == [("Lima",)]
    assert rows(session, "SELECT id FROM by_id WHERE id BETWEEN %s AND %s LIMIT %s", "1", "8", 2) == [(1,), (2,)]
    with pytest.raises(errors.InvalidTextRepresentation):
        rows(session, "SELECT town FROM by_id WHERE id = %s", "five")


def test_a_value_is_never_a_piece_of_the_statement(session: Session) -> None:
    assert rows(session, "SELECT town FROM by_town WHERE town = %s", "x' OR '1' = '1") == []
    assert rows(session, "SELECT 10 -%s AS n FROM places", -5) == [(15,)]


def test_prepared_statements(session: Session) -> None:
    for number in range(3):
        found = session.execute("SELECT id FROM by_id WHERE id = %s", (number,), prepare=True).fetchall()
        assert found == [(number,)]
    session.execute("DEALLOCATE ALL")
    assert session.execute("SELECT id FROM by_id WHERE id = %s", (1,), prepare=True).fetchall() == [(1,)]


def test_two_statements_in_one_text(session: Session) -> None:
    found = session.execute("SELECT town FROM by_town WHERE visits = 4; -- ;\nSELECT ';' AS x FROM places;")
    assert [each.fetchall() for each in found.results()] == [[("Rome",)], [(";",)]]


def test_nothing_runs_after_a_mistake_in_a_text(session: Session) -> None:
    with pytest.raises(errors.UndefinedColumn):
        session.execute("SELECT twn FROM by_town; SET application_name = 'changed'")
    assert rows(session, "SHOW application_name") != [("changed",)]


def test_a_cursor_over_100_000_rows_takes_them_piece_by_piece(session: Session) -> None:
    with session.transaction(), session.cursor(name="all") as cursor:
        cursor.itersize = 25_000
        cursor.execute(ALL_ROWS)
        assert len(cursor.fetchmany(10)) == 10
        assert sum(1 for _ in cursor) == 99_990


def test_a_cursor_lives_in_its_transaction(session: Session) -> None:
    with pytest.raises(errors.NoActiveSqlTransaction):
        session.execute("DECLARE c CURSOR FOR SELECT town FROM by_town")
    session.execute("BEGIN; DECLARE c CURSOR FOR SELECT id FROM by_id")
    session.execute("DECLARE held CURSOR WITH HOLD FOR SELECT id FROM by_id")
    assert rows(session, "FETCH 2 FROM c") == [(0,), (1,)]
    assert session.execute("MOVE FORWARD 3 IN c").statusmessage == "MOVE 3"
    assert rows(session, "FETCH NEXT FROM c") == [(5,)]
    session.execute("COMMIT")
    with pytest.raises(errors.InvalidCursorName):
        session.execute("FETCH 1 FROM c")
    assert len(rows(session, "FETCH ALL FROM held")) == 10
    session.execute("CLOSE held")


def test_a_transaction_that_failed_waits_for_its_end(session: Session) -> None:
    session.execute("BEGIN")
    with pytest.raises(errors.UndefinedTable):
        session.execute("SELECT * FROM nothing")
    with pytest.raises(errors.InFailedSqlTransaction):
        session.execute("SELECT * FROM by_town")
    assert session.execute("COMMIT").statusmessage == "ROLLBACK"
    assert len(rows(session, "SELECT * FROM by_town")) == 4


def test_a_savepoint_takes_back_a_failure(session: Session) -> None:
    with session.transaction():
        with pytest.raises(errors.UndefinedTable), session.transaction():
            session.execute("SELECT * FROM nothing")
        assert len(rows(session, "SELECT * FROM by_town")) == 4


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("INSERT INTO visits VALUES (1, 'a', 1)", "25006"),
        ("CREATE TABLE x AS SELECT * FROM visits", "25006"),
        ("DROP TABLE by_town", "25006"),
        ("COPY visits FROM STDIN", "25006"),
        ("LISTEN x", "0A000"),
        ("SELECT * FROM by_town EMIT CHANGES", "0A000"),
        ("SELECT * FROM read_csv('/etc/passwd')", "0A000"),
        ("SELECT * FROM pg_class, read_csv('/etc/passwd')", "42P01"),
        ("SELECT c.oid FROM pg_class c JOIN by_town ON true", "42P01"),
        ("SELECT FROM", "42601"),
        ("SELECT town + 1 FROM by_town", "42804"),
        ("SET nonsense = 1", "42704"),
        ("SHOW nonsense", "42704"),
    ],
)
def test_what_is_not_taken_says_why(session: Session, sql: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(sql)
    assert caught.value.sqlstate == state, caught.value
    assert rows(session, "SELECT 1 AS one") == [(1,)]


def test_a_mistake_has_code_position_and_hint(session: Session) -> None:
    with pytest.raises(errors.UndefinedColumn) as caught:
        session.execute("SELECT 1 AS a FROM places;\n SELECT town,\n twn FROM public.by_town WHERE town = 'Rome'")
    about = caught.value.diag
    assert (about.statement_position, about.message_detail) == ("43", "code sql.unknown_name, action stop")
    assert about.message_hint == "did you mean 'town'?"
    with pytest.raises(errors.UndefinedColumn) as caught:
        session.execute("SELECT id FROM public.by_id WHERE id = %s AND twn = 'x'", (1_000_000,))
    assert caught.value.diag.statement_position == "47"


# As many rows as ten visits have combinations of eighteen.
ENDLESS = "SELECT COUNT(*) AS n FROM visits v0" + "".join(f" JOIN visits v{n} ON v{n}.n > 0" for n in range(1, 12))
"""10^12 rows, and what is kept of them fits the memory of a query, which puts nothing on disk."""


def test_limits_are_those_of_every_query(session: Session) -> None:
    with pytest.raises(errors.ProgramLimitExceeded, match=r"100,000 rows"):
        session.execute(ALL_ROWS + " JOIN places p ON v0.id >= 0 UNION ALL SELECT id, town FROM by_id")
    session.execute("SET statement_timeout = '300ms'")
    with pytest.raises(errors.QueryCanceled, match=r"0\.3 s"):
        session.execute(ENDLESS)
    session.execute("RESET statement_timeout")


def test_a_query_that_is_cancelled_ends(session: Session) -> None:
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(session.execute, ENDLESS)
        wait_until(lambda: session.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE, "it does not run")

        def ends() -> bool:
            # Again and again: a query that has not begun is not cancelled, as PostgreSQL has it.
            session.cancel_safe()
            return running.done()

        wait_until(ends, "it goes on", 0.3)
        with pytest.raises(errors.QueryCanceled, match="cancelled"):
            running.result()
    assert len(rows(session, "SELECT * FROM by_town")) == 4


def test_an_answer_says_what_it_reflects(session: Session) -> None:
    rows(session, "SELECT t.town FROM by_town t JOIN by_id i ON t.town = i.town")
    versions = session.info.parameter_status("strandline.versions")
    assert versions is not None
    assert {each.partition("=")[0] for each in versions.split(",")} == {"by_town", "by_id"}
    assert rows(session, "SHOW strandline.versions") == [(versions,)]
    assert rows(session, "SHOW strandline.event_time")[0][0].startswith("2024-05-01T00:00:")
    assert int(rows(session, "SHOW strandline.freshness_ms")[0][0]) >= 0


def test_settings(session: Session) -> None:
    notices: list[str | None] = []
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    session.execute("SET TIME ZONE 'Europe/Rome'")
    assert notices == ["'TimeZone' stays 'UTC'"]
    session.execute("SET client_encoding TO 'UTF8'; SET NAMES 'utf-8'; SET TimeZone = 'UTC'")
    session.execute("SET application_name = 'it''s mine'")
    assert (len(notices), rows(session, "SHOW application_name")) == (1, [("it's mine",)])
    session.execute("RESET ALL; DISCARD ALL")
    assert rows(session, "SHOW application_name") == [("",)]


def test_a_pipeline(session: Session) -> None:
    with session.pipeline():
        one, two = session.execute("SELECT 1 AS n"), session.execute("SELECT town FROM by_id WHERE id = 1")
    assert (one.fetchall(), two.fetchall()) == ([(1,)], [("Oslo",)])


def test_the_plan_of_a_view(session: Session) -> None:
    assert "stage 1 of 1" in "\n".join(line for (line,) in rows(session, "EXPLAIN by_town"))
