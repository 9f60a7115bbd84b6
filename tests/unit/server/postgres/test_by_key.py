"""SELECTs of keys over PostgreSQL's protocol: a replica answers them, with the bytes that Arrow would have written."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType
from strandline.jobs.server.postgres.asking import FewRows
from strandline.jobs.server.postgres.rows import data_rows, few_rows
from strandline.jobs.server.postgres.wire_types import columns_of
from strandline.jobs.server.state.by_key import Keyed, KeyedQueries
from tests.support.waiting import wait_until
from tests.unit.server.postgres.test_drivers import answer_to, message

Session = psycopg.Connection[Any]

TEXTS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("SELECT * FROM by_town WHERE town = %s", ("Rome",)),
    ("SELECT * FROM public.by_town WHERE town = %s", ("a/b ü",)),
    ('SELECT "t"."visits", t.town AS "Town" FROM "public"."by_town" "t" WHERE "t"."town" = \'Rome\'', ()),
    ("SELECT visits FROM by_id WHERE id = %s AND town = %s", (0, "Rome")),
    ("SELECT * FROM by_id WHERE id = ANY(%s) AND town = %s", ([0, 3, 9], "Rome")),
    ("SELECT * FROM by_id WHERE id = %s::int8 AND visits >= %s LIMIT %s", (1, 1, 5)),
    ("SELECT * FROM by_town WHERE town = 'Rome'", ()),
    ("SELECT * FROM by_town WHERE town = %s", ("nowhere",)),
    ("SELECT * FROM places WHERE name = %s", ("Rome",)),
)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether a replica gave each answer."""
    found: list[bool] = []
    find = KeyedQueries.find

    async def noted(*arguments: Any, **options: Any) -> Keyed | None:
        keyed = await find(*arguments, **options)
        found.append(keyed is not None)
        return keyed

    with monkeypatch.context() as patch:
        patch.setattr(KeyedQueries, "find", noted)
        yield found


def live(session: Session, answered: list[bool], text: str, values: tuple[object, ...]) -> None:
    """The replica of the view answers from now on."""

    def asked() -> bool:
        session.execute(text, values).fetchall()
        return answered[-1]

    wait_until(asked, "no replica answers")


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("text", "values"), TEXTS)
def test_a_replica_answers(
    session: Session,
    answered: list[bool],
    text: str,
    values: tuple[object, ...],
    binary: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live(session, answered, text, values)
    for prepare in (False, True):
        cursor = session.execute(text, values, binary=binary, prepare=prepare)
        assert answered[-1]
        found = (_described(cursor), cursor.fetchall())
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(KeyedQueries, "find", _nothing)
            cursor = session.execute(text, values, binary=binary)
            assert found == (_described(cursor), cursor.fetchall())


def _described(cursor: psycopg.Cursor[Any]) -> list[tuple[object, ...]]:
    """The names and types of the columns."""
    return [tuple(column)[:3] for column in cursor.description or ()]


async def _nothing(*_arguments: object, **_options: object) -> None:
    """The answer of whoever answers nothing."""


def test_a_driver_that_asks_for_types_first(session: Session, answered: list[bool]) -> None:
    live(session, answered, "SELECT * FROM by_id WHERE id = 1", ())
    text = b"SELECT town, visits FROM by_id WHERE id = $1 AND town = $2"
    answer = answer_to(
        session,
        message(b"P", b"s\0", text, struct.pack("!xh", 0)),
        message(b"D", b"Ss\0"),
        message(b"S"),
        message(b"B", b"\0s\0", struct.pack("!hh", 0, 2), struct.pack("!i1si4sh", 1, b"0", 4, b"Rome", 0)),
        message(b"E", b"\0", struct.pack("!i", 0)),
        message(b"S"),
    )
    assert message(b"t", struct.pack("!hII", 2, 20, 25)) in answer
    assert message(b"D", struct.pack("!hi4si1s", 2, 4, b"Rome", 1, b"1")) in answer
    assert answered[-1]


def test_a_cursor_and_a_copy(session: Session, answered: list[bool]) -> None:
    text = "SELECT id, town, visits FROM by_id WHERE id IN (0, 1, 2) AND town IN ('Rome', 'Oslo', 'a/b ü')"
    live(session, answered, text, ())
    with session.transaction():
        session.execute(f"DECLARE c CURSOR FOR {text}")
        assert session.execute("FETCH 2 FROM c").fetchall() == [(0, "Rome", 1), (1, "Oslo", 1)]
        assert session.execute("FETCH 2 FROM c").fetchall() == [(2, "a/b ü", 1)]
    with session.cursor().copy(f"COPY ({text}) TO STDOUT") as copy:
        assert list(copy.rows()) == [("0", "Rome", "1"), ("1", "Oslo", "1"), ("2", "a/b ü", "1")]
    assert answered[-1]


def test_a_wrong_parameter_is_refused_as_ever(session: Session) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        session.execute("SELECT town FROM by_id WHERE id = %s", ("five",))


@pytest.mark.parametrize("form", [0, 1])
def test_few_rows_have_the_bytes_of_many(form: int) -> None:
    values: tuple[tuple[SqlType, tuple[object, ...]], ...] = (
        (t.BOOLEAN, (True, False)),
        (t.INT, (-(1 << 31), 7)),
        (t.BIGINT, (-(1 << 63), (1 << 63) - 1)),
        (t.DOUBLE, (-0.0, 1e300)),
        (t.decimal(12, 7), (Decimal("0.0000001"), Decimal("-12345.5000000"))),
        (t.VARCHAR, ("", "ü\0'")),
        (t.BYTES, (b"", b"\0\xff")),
        (t.DATE, (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
        (t.TIMESTAMP, (dt.datetime(2024, 5, 1, 12, 0, 0, 1, dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC))),
        (t.TIME, (0, 86_399_999)),
        (t.array(t.VARCHAR), ([], ["a", None, 'b"'])),
        (t.map_of(t.VARCHAR, t.INT), ([("a", 1)], [])),
        (t.struct(("a", t.INT)), ({"a": 1}, {"a": None})),
    )
    types = tuple(sql_type for sql_type, _ in values)
    rows = [*zip(*(each for _, each in values), strict=True), (None,) * len(types)]
    doubles = [(number,) for number in (0.1, 1e16, 1e-7, 123456789.125, float("nan"), float("inf"), float("-inf"))]
    only = columns_of(["d"], [t.DOUBLE])
    alone = b"".join(map(bytes, data_rows(FewRows(doubles, (t.DOUBLE,)).table(), only, [form])))
    assert few_rows(doubles, only, [form]) == alone
    columns = columns_of([str(number) for number in range(len(types))], types)
    formats = [form] * len(types)
    many = b"".join(map(bytes, data_rows(FewRows(rows, types).table(), columns, formats)))
    assert few_rows(rows, columns, formats) == many
