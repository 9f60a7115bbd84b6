"""Partial views: what their definition may say, and what is refused around them with what to type instead."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.subjects import subjects
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.errors import KeyRequired
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

SOURCES = """
    CREATE STREAM visits (id BIGINT KEY, product VARCHAR, length DOUBLE) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'info');
"""
COUNTED = "SELECT product, COUNT(*) AS n FROM visits GROUP BY product"
PARTIAL = f"CREATE TABLE counted WITH (STATE = 'partial', CACHE_BYTES = 1000) AS {COUNTED};"


def execute(settings: Settings, text: str) -> Interpreter:
    interpreter = Interpreter(settings)
    assert list(interpreter.run(SOURCES + text))
    return interpreter


def test_a_partial_view_is_in_the_catalog_and_nothing_is_maintained_for_it(settings: Settings) -> None:
    catalog = execute(settings, PARTIAL).catalog
    view = catalog.get("counted")
    assert isinstance(view, View)
    assert view.partial
    assert view.maintenance.cache_bytes == 1000
    items = [item.name for level in maintained(catalog.definitions(), catalog) for item in level]
    assert items == ["info"]
    assert "counted" not in {subject.table for subject in subjects((), catalog, LakeLayout(settings.lake))}


def test_the_status_says_that_a_view_is_partial(settings: Settings) -> None:
    execute(settings, PARTIAL)
    found = [dict(zip(status(settings).names, row, strict=True)) for row in status(settings).rows]
    assert [row["state"] for row in found if row["table"] == "counted"] == ["partial"]


@pytest.mark.parametrize(
    ("statement", "error", "said", "hint"),
    [
        (f"CREATE TABLE t WITH (CACHE_BYTES = 5) AS {COUNTED};", OptionRefused, "CACHE_BYTES", "STATE = 'partial'"),
        *(
            (f"CREATE TABLE t WITH (STATE = 'partial', {option}) AS {COUNTED};", OptionRefused, said, "leave")
            for option, said in (
                ("REFRESH = 'full'", "refreshed"),
                ("ERRORS = 'null'", "fails"),
                ("SEMANTICS = 'ksql'", "once existed"),
                ("KAFKA_TOPIC = 't'", "changelog"),
            )
        ),
        (
            "CREATE STREAM t WITH (STATE = 'partial') AS SELECT * FROM visits;",
            InvalidQuery,
            "is a stream",
            "GROUP BY",
        ),
        (
            "CREATE MATERIALIZED VIEW t WITH (STATE = 'partial') AS SELECT COUNT(*) AS n FROM visits;",
            InvalidQuery,
            "no column of its key",
            "group by",
        ),
        (
            "CREATE TABLE t WITH (STATE = 'partial') AS SELECT length, COUNT(*) AS n FROM visits GROUP BY length;",
            InvalidQuery,
            "no column of its key",
            "BIGINT",
        ),
        (
            "CREATE TABLE t WITH (STATE = 'partial') AS SELECT product, COUNT(*) AS n FROM visits "
            "WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY product EMIT FINAL;",
            NotSupported,
            "EMIT FINAL",
            "leave EMIT FINAL",
        ),
        (
            f"{PARTIAL} CREATE MATERIALIZED VIEW t AS SELECT n, COUNT(*) AS m FROM counted GROUP BY n;",
            NotSupported,
            "'counted' is a partial view",
            "visits",
        ),
        (
            f"{PARTIAL} CREATE OR REPLACE TABLE counted AS {COUNTED};",
            NotSupported,
            "a partial view has no table",
            "DROP it",
        ),
        (f"{PARTIAL} SELECT * FROM counted;", KeyRequired, "'product' is not given", "WHERE product = …"),
        (f"{PARTIAL} SELECT * FROM counted WHERE n = 1;", KeyRequired, "read by key", "WHERE product = …"),
        (
            f"{PARTIAL} SELECT c.n FROM counted c JOIN info i ON c.product = i.product;",
            KeyRequired,
            "'product' is not given",
            "with constants",
        ),
        (
            f"{PARTIAL} SELECT * FROM counted WHERE product = 'a' EMIT CHANGES;",
            NotSupported,
            "no changes to follow",
            "by its key",
        ),
    ],
)
def test_what_is_refused(
    settings: Settings, statement: str, error: type[StrandlineError], said: str, hint: str
) -> None:
    with pytest.raises(error, match=said) as refused:
        execute(settings, statement)
    assert hint in (refused.value.hint or "")


def test_there_is_nothing_to_rebuild(settings: Settings) -> None:
    execute(settings, PARTIAL)
    with pytest.raises(NotSupported, match="nothing is stored") as refused:
        rebuild(settings, "counted")
    assert "strandline rebuild visits" in (refused.value.hint or "")


def test_explain_says_what_a_change_drops(settings: Settings) -> None:
    interpreter = execute(
        settings,
        "CREATE MATERIALIZED VIEW t WITH (STATE = 'partial') AS SELECT i.category, COUNT(*) AS n, MAX(m.longest) AS m "
        "FROM visits v JOIN info i ON v.product = i.product "
        "CROSS JOIN (SELECT MAX(length) AS longest FROM visits) m GROUP BY i.category;",
    )
    (found,) = interpreter.run("EXPLAIN t;")
    text = str(getattr(found, "text", ""))
    assert "info: rows with category = category" in text
    assert "visits: rows whose product is an info.product" in text
    assert "visits: all rows\n  a change drops all keys" in text


def test_a_partial_view_is_dropped_as_any_other(settings: Settings) -> None:
    execute(settings, f"{PARTIAL} DROP TABLE counted;")
    assert Catalog(LakeLayout(settings.lake)).find("counted") is None
