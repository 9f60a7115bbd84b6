"""Plain views: names for queries, in views, in queries into streams, in pull queries and in one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import PlainView, View
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NameTaken, NotSupported, OptionRefused, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Document, Message, Rows
from strandline.jobs.session.apply import apply, plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import StrandlineError

_SALES = """
    CREATE TABLE sales (id INT PRIMARY KEY, shop VARCHAR, n INT) WITH (KAFKA_TOPIC = 'sales');
    CREATE VIEW large (shop, amount) AS SELECT shop, n FROM sales WHERE n > 10;
"""
_READER = "CREATE MATERIALIZED VIEW by_shop AS SELECT l.shop, SUM(l.amount) AS total FROM large l GROUP BY l.shop;"


def say(session: Interpreter, text: str) -> list[str]:
    return [result.text if isinstance(result, Message | Document) else str(result) for result in session.run(text)]


def rows(session: Interpreter, query: str) -> list[tuple[object, ...]]:
    (found,) = session.run(query)
    assert isinstance(found, Rows)
    return sorted(tuple(row) for row in found.rows)


def test_a_plain_view_is_its_query_in_what_reads_it(session: Interpreter) -> None:
    assert say(session, _SALES)[-1] == "view 'large' created (pipeline 'default')"
    say(session, _READER + "CREATE VIEW huge AS SELECT * FROM large WHERE amount > 100;")
    say(session, "INSERT INTO sales VALUES (1, 'a', 5), (2, 'a', 20), (3, 'b', 200)")
    drain(session.settings, "default", in_driver=True)
    assert rows(session, "SELECT * FROM by_shop") == [("a", 20), ("b", 200)]
    assert rows(session, "SELECT shop FROM large") == [("a",), ("b",)]
    assert rows(session, "SELECT h.shop, b.total FROM huge h JOIN by_shop b ON h.shop = b.shop") == [("b", 200)]
    assert rows(session, "WITH large AS (SELECT 1 AS one) SELECT one FROM large") == [(1,)]
    found = session.catalog.get("by_shop")
    assert isinstance(found, View)
    assert found.inputs == ("sales",)
    assert "large" in Catalog(session.lake).plain  # another process
    assert [check for check in verify(session.settings) if check.ok is False] == []


def test_the_same_again_changes_nothing_and_another_needs_or_replace(session: Interpreter) -> None:
    say(session, _SALES)
    again = "CREATE VIEW large (shop, amount) AS SELECT shop,  n FROM sales WHERE n > 10"
    assert say(session, again) == ["view 'large' unchanged (pipeline 'default')"]
    other = "VIEW large AS SELECT shop FROM sales"
    with pytest.raises(NameTaken, match="'large' is defined already, differently"):
        say(session, f"CREATE {other}")
    assert say(session, f"CREATE VIEW IF NOT EXISTS {other[5:]}") == ["view 'large' unchanged (pipeline 'default')"]
    assert say(session, f"CREATE OR REPLACE {other}") == ["view 'large' replaced (pipeline 'default')"]
    assert [column.name for column in session.catalog.plain["large"].columns] == ["shop"]


def test_what_is_read_is_neither_dropped_nor_replaced(session: Interpreter) -> None:
    say(session, _SALES + _READER + "CREATE VIEW above AS SELECT amount FROM large;")
    for text in ("DROP VIEW large", "CREATE OR REPLACE VIEW large AS SELECT n FROM sales"):
        with pytest.raises(NameInUse, match="'large' is read by 'above', 'by_shop'"):
            say(session, text)
    with pytest.raises(NameInUse, match="'sales' is read by"):
        say(session, "DROP TABLE sales")
    say(session, "DROP VIEW large CASCADE")
    assert (dict(session.catalog.plain), session.catalog.names()) == ({}, ("sales",))
    say(session, "CREATE VIEW large AS SELECT n FROM sales; DROP TABLE sales CASCADE")
    assert (dict(session.catalog.plain), session.catalog.names()) == ({}, ())


def test_a_reader_whose_text_says_a_named_type_counts(session: Interpreter) -> None:
    text = "CREATE TYPE whole AS BIGINT; CREATE MATERIALIZED VIEW w AS SELECT CAST(amount AS whole) AS n FROM large;"
    for statements in (_SALES, text.split(";")[0], text.split(";")[1]):
        say(session, statements)
    with pytest.raises(NameInUse, match="'large' is read by 'w'"):
        say(session, "DROP VIEW large")


def test_a_plain_view_is_listed_described_and_explained(session: Interpreter) -> None:
    say(session, _SALES + _READER)
    assert [(row[0], row[1], row[-1]) for row in rows(session, "SHOW VIEWS")] == [
        ("by_shop", "view", ["sales"]),
        ("large", "plain view", ["sales"]),
    ]
    (described,) = session.run("DESCRIBE large")
    assert isinstance(described, Document)
    assert (described.data["kind"], described.data["read_by"]) == ("plain view", ["by_shop"])
    assert [column["name"] for column in described.data["columns"]] == ["shop", "amount"]
    (explained,) = say(session, "EXPLAIN large")
    assert "nothing is stored" in explained
    assert "(SELECT shop, n FROM sales WHERE n > 10)" in explained
    assert "sales" in say(session, "EXPLAIN SELECT shop FROM large")[0]


def test_a_star_stands_for_the_columns_of_its_time(session: Interpreter) -> None:
    say(session, "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC = 's'); CREATE VIEW v AS SELECT * FROM s;")
    say(session, "ALTER STREAM s ADD COLUMN b INT; CREATE STREAM w AS SELECT * FROM v;")
    found = session.catalog.get("w")
    assert isinstance(found, View)
    assert [column.name for column in found.columns] == ["a"]


def test_renamed_relations_are_read_on(session: Interpreter) -> None:
    say(session, _SALES + "ALTER TABLE sales RENAME TO sold;" + _READER)
    assert rows(session, "SHOW VIEWS")[1][-1] == ["sold"]
    with pytest.raises(NotSupported, match="view 'large' cannot be renamed"):
        say(session, "ALTER VIEW large RENAME TO big")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE VIEW v AS SELECT x FROM sales", UnknownName, "unknown column 'x'"),
        ("CREATE VIEW v AS SELECT n FROM nowhere", UnknownName, "'nowhere'"),
        ("CREATE VIEW v AS SELECT n FROM v", InvalidQuery, "'v' reads itself"),
        ("CREATE VIEW v AS SELECT n FROM sales EMIT CHANGES", InvalidQuery, "a plain view has no EMIT"),
        (
            "CREATE VIEW v WITH (STATE = 'shared') AS SELECT n FROM sales",
            OptionRefused,
            "STATE is for views whose rows",
        ),
        ("CREATE VIEW sales AS SELECT 1 AS n", NameTaken, "'sales' is defined already"),
        ("CREATE VIEW Large2 AS SELECT n FROM sales; CREATE TABLE large2 (id INT PRIMARY KEY)", NameTaken, "large2"),
        ("DROP TABLE large", NotSupported, "view 'large' is no table"),
        ("CREATE MATERIALIZED VIEW large AS SELECT n FROM sales", NameTaken, "'large' is defined already"),
    ],
)
def test_what_cannot_be(session: Interpreter, text: str, error: type[StrandlineError], message: str) -> None:
    say(session, _SALES)
    with pytest.raises(error, match=message):
        say(session, text)


def test_a_file_has_plain_views_among_its_definitions(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "shop.sql"
    path.write_text(_SALES + _READER)
    assert "create    view 'large'" in str(plan_apply(path, settings))
    assert str(apply(path, settings)).splitlines()[1] == "view 'large' created (pipeline 'shop')"
    assert "unchanged view 'large'" in str(plan_apply(path, settings))
    path.write_text(_SALES.split("CREATE VIEW")[0])
    assert apply(path, settings).missing == ("by_shop", "large")
    found = Interpreter(settings).catalog.plain["large"]
    assert isinstance(found, PlainView)


def test_a_maintained_view_stays_what_create_view_made_of_it(session: Interpreter) -> None:
    """Before there were plain views, CREATE VIEW was CREATE MATERIALIZED VIEW."""
    say(session, _SALES.split("CREATE VIEW")[0] + "CREATE MATERIALIZED VIEW v AS SELECT shop FROM sales;")
    assert say(session, "CREATE VIEW v AS SELECT shop FROM sales") == [
        "materialized view 'v' unchanged (pipeline 'default')"
    ]
