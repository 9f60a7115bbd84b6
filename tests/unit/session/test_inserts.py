"""INSERT INTO … VALUES: rows given as values of the columns, or refused as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest

from strandline.jobs.ingest import produce
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import Lake
from tests.unit.session.statements import STREAM, VIEW, message, run


def test_rows_are_given_to_the_source_as_values_of_its_columns(
    session: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, object]] = []

    def kept(_source: Source, rows: Sequence[Mapping[str, object]], *_: object) -> int:
        given.extend(rows)
        return len(rows)

    monkeypatch.setattr(produce, "insert_rows", kept)
    run(session, STREAM)
    run(session, "INSERT INTO s VALUES (1, 'it''s', 1.5)")
    text = "INSERT INTO s (name, id, ROWTIME) VALUES (NULL, 2 + 3 * 4, 99), ('x', 7, 0)"
    assert message(session, text) == "2 rows inserted into 's'"
    assert given == [
        {"id": 1, "name": "it's", "d": Decimal("1.50")},
        {"name": None, "id": 14, "rowtime": 99},
        {"name": "x", "id": 7, "rowtime": 0},
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("INSERT INTO nope VALUES (1)", UnknownName),
        ("INSERT INTO v VALUES (1, 1)", InvalidQuery),
        ("INSERT INTO s VALUES (1)", InvalidQuery),
        ("INSERT INTO s (id, id) VALUES (1, 1)", InvalidQuery),
        ("INSERT INTO s (ids) VALUES (1)", UnknownName),
        ("INSERT INTO s (id) VALUES (1), ('x')", TypeMismatch),
        ("INSERT INTO s (id) VALUES (9223372036854775808)", TypeMismatch),
        ("INSERT INTO s (d) VALUES (1.005)", TypeMismatch),
        ("INSERT INTO s (d) VALUES (12345)", TypeMismatch),
        ("INSERT INTO s (id) VALUES (1 / 0)", InvalidQuery),
        ("INSERT INTO s (id) VALUES (name)", NotSupported),
    ],
)
def test_a_wrong_row_is_refused_and_nothing_is_written(
    session: Interpreter, settings: Settings, lake: Lake, text: str, error: type[SqlError]
) -> None:
    run(session, STREAM + VIEW)
    with pytest.raises(error):
        run(session, text)
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 0
