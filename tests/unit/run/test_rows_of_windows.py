"""Which windows a row is in, and which rows of them fail: by the view, by a pull of its text, and by verify."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.model.errors import InvalidQuery, SqlSyntaxError
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter

GRACE = ", GRACE PERIOD 2 SECONDS"
WINDOWS = ("TUMBLING (SIZE 2 SECONDS{})", "HOPPING (SIZE 4 SECONDS, ADVANCE BY 2 SECONDS{})", "SESSION (2 SECONDS{})")
SOURCE = """
CREATE STREAM s (k VARCHAR, at BIGINT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, TIMESTAMP = 'at');
CREATE STREAM r (k VARCHAR, at BIGINT) WITH (KAFKA_TOPIC = 'r', PARTITIONS = 1, TIMESTAMP = 'at');
"""


class Session:
    """One pipeline."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._session = settings, Interpreter(settings, "p")
        self.run(SOURCE)

    def run(self, text: str) -> None:
        list(self._session.run(text))

    def drain(self) -> None:
        drain(self._settings, "p", in_driver=True)
        wrong = [each for each in verify(self._settings, deep=True) if each.ok is False]
        assert not wrong, wrong

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        (found,) = self._session.run(query)
        assert isinstance(found, Rows)
        return sorted(map(tuple, found.rows))


@pytest.fixture
def session(settings: Settings) -> Session:
    return Session(settings)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_row_that_no_window_takes_any_more_does_not_fail(session: Session, window: str) -> None:
    query = f"SELECT k, COUNT(*) AS n FROM s WINDOW {window.format(GRACE)} WHERE CAST(k AS INT) > 0 GROUP BY k"
    session.run(f"CREATE MATERIALIZED VIEW v AS {query}; INSERT INTO s VALUES ('1', 28000), ('x', 12000);")
    session.drain()
    assert session.rows("SELECT k, n FROM v") == session.rows(query)
    assert session.rows("SELECT * FROM v__dead_letters") == []
    session.run("INSERT INTO s VALUES ('x', 28000);")
    session.drain()
    ((reason, _),) = session.rows("SELECT reason, row FROM v__dead_letters")
    assert reason == "fails in v: CAST(s.k AS INT) > 0", "and of the window's arithmetic it says nothing"
    with pytest.raises(InvalidQuery, match=r"fails on a row: CAST\(s\.k AS INT\) > 0"):
        session.rows(query)


@pytest.mark.parametrize("grace", ["", GRACE])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_before_1970_are_the_same_on_every_path(session: Session, window: str, grace: str) -> None:
    query = f"SELECT k, WINDOWSTART AS begun, COUNT(*) AS n FROM s WINDOW {window.format(grace)} GROUP BY k"
    session.run(f"CREATE MATERIALIZED VIEW v AS {query};")
    session.run("INSERT INTO s VALUES ('a', -10000), ('a', -9000), ('b', -1), ('b', 0), ('b', 3000);")
    session.drain()
    assert session.rows("SELECT k, begun, n FROM v") == session.rows(query)
    begun = [begins for _, begins, _ in session.rows(query)]
    assert (min(begun) == 0) is window.startswith("HOPPING"), "a hop begins at 1970 or later, as Kafka's does"


def test_streams_that_join_within_a_time_fail_by_their_own_expressions(session: Session) -> None:
    query = (
        "SELECT s.k AS k, CAST(r.k AS INT) AS n FROM s JOIN r WITHIN 5 SECONDS GRACE PERIOD 9 SECONDS ON s.at = r.at"
    )
    session.run(f"CREATE MATERIALIZED VIEW v AS {query};")
    session.run("INSERT INTO s VALUES ('x', 1000); INSERT INTO r VALUES ('y', 1000);")
    session.drain()
    ((reason, _),) = session.rows("SELECT reason, row FROM v__dead_letters")
    assert reason == "fails in v: CAST(r.k AS INT)"


@pytest.mark.parametrize("length", ["99999999999999 DAYS", "9223372036854775807 MILLISECONDS"])
def test_a_length_that_no_time_can_be_added_to_is_refused(session: Session, length: str) -> None:
    for clause in (f"WINDOW SESSION ({length})", f"WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD {length})"):
        with pytest.raises(SqlSyntaxError, match="the length is more than"):
            session.run(f"CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM s {clause} GROUP BY k;")
    with pytest.raises(SqlSyntaxError, match="the length is more than"):
        session.run(f"CREATE MATERIALIZED VIEW v AS SELECT s.k FROM s JOIN r WITHIN {length} ON s.k = r.k;")
