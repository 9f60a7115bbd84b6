"""Where a pipeline stands: what its tables have not taken in yet."""

from __future__ import annotations

from jobs.model.settings import Settings
from jobs.session.interpreter import Interpreter
from jobs.session.status import status
from state_store.layout import Lake
from tests.support.lake_tables import events
from tests.unit.session.statements import STREAM, VIEW, run


def test_status_counts_what_is_not_in_yet(session: Interpreter, settings: Settings, lake: Lake) -> None:
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1), (2);")

    def lags() -> dict[object, tuple[object, ...]]:
        return {row[1]: (row[3], row[5], row[6], row[7]) for row in status(settings).rows}

    assert lags() == {"s": (None, None, 2, "events"), "v": (None, None, 0, "versions")}
    events(lake, "s", [{"id": 1}, {"id": 2}])
    assert lags() == {"s": (0, 2, 2, "events"), "v": (None, None, 1, "versions")}
