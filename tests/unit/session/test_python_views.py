"""Views in Python: each kind gives what Ibis's own DuckDB gives, and is the statement that SQL would be."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any

import duckdb
import ibis
import pytest
from ibis import _
from ibis.backends.sql.compilers.duckdb import DuckDBCompiler

import strandline
from strandline.jobs.model.definitions import Ownership, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.python_views import PythonView, views_of
from strandline.jobs.sql import from_ibis
from strandline.state_store.errors import SettingsError
from strandline.views import view
from tests.support import python_views

VIEWS = {each.name: each for each in views_of(python_views)}
INITCAP = "CREATE MACRO initcap(t) AS upper(t[1]) || lower(t[2:])"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> strandline.Lake:
    """The lake with all the views, after two drains: what the first has brought, the second corrects and takes away."""
    settings = load_settings(lake=tmp_path_factory.mktemp("shop") / "lake")
    lake = strandline.Lake(settings)
    list(Interpreter(settings, "shop").run(python_views.SOURCES))
    lake.apply(python_views, pipeline="shop")
    for events in (python_views.FIRST, python_views.SECOND):
        list(Interpreter(settings).run(events))
        lake.drain("shop")
    return lake


@pytest.fixture(scope="module")
def oracle(shop: strandline.Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the rows of the sources, and of the views that others read."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(INITCAP)
        for name in ("customers", "orders", "clicks", "largest"):
            db.register(name, shop.arrow(name))
        yield db


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_gives_what_ibis_gives(name: str, shop: strandline.Lake, oracle: duckdb.DuckDBPyConnection) -> None:
    columns = {each: Interpreter(shop.settings).catalog.get(each) for each in VIEWS[name].inputs}
    given = {
        each: from_ibis.relation(each, tuple((c.name, c.type) for c in found.columns))  # type: ignore[union-attr]
        for each, found in columns.items()
    }
    expression = VIEWS[name](**given)
    expected = oracle.sql(DuckDBCompiler().to_sqlglot(expression).sql("duckdb")).to_arrow_table()
    found = shop.arrow(name)
    assert found.column_names == list(expression.columns)
    assert found.num_rows > 0
    assert_alike(found.to_pylist(), expected.to_pylist())


def test_every_operation_that_is_taken_is_compared(shop: strandline.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    visit = from_ibis._Compiler.visit_node

    def noted(self: Any, op: Any, **kwargs: Any) -> Any:
        seen.add(type(op).__name__)
        return visit(self, op, **kwargs)

    monkeypatch.setattr(from_ibis._Compiler, "visit_node", noted)
    shop.plan(python_views, pipeline="shop")
    assert sorted(from_ibis._MEANT - seen) == []


def assert_alike(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Equal rows in any order: DOUBLEs to 12 digits, and midnight as a DATE is midnight as a TIMESTAMP."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isnan(value) else float(f"{value:.12g}")
        if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
            return int(value)  # DuckDB's sums of whole numbers
        if isinstance(value, dt.datetime):
            return value.replace(tzinfo=None)
        return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else value

    def rows(of: list[dict[str, Any]]) -> list[str]:
        return sorted(repr({name: plain(value) for name, value in row.items()}) for row in of)

    assert rows(found) == rows(expected)


# --- the statement --------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(settings: Settings) -> strandline.Lake:
    """A lake with the sources alone."""
    list(Interpreter(settings, "shop").run(python_views.SOURCES))
    return strandline.Lake(settings)


def stored(lake: strandline.Lake, name: str) -> View:
    found = Interpreter(lake.settings).catalog.get(name)
    assert isinstance(found, View)
    return found


def module(*views: PythonView) -> ModuleType:
    made = ModuleType("reports")
    for number, each in enumerate(views):
        setattr(made, f"view_{number}", each)
    return made


def test_what_is_stored_is_the_sql(lake: strandline.Lake) -> None:
    lake.apply(VIEWS["largest"])
    lake.apply(VIEWS["countries"])
    found = stored(lake, "countries")
    assert found.sql.startswith(
        "CREATE OR REPLACE MATERIALIZED VIEW countries WITH (OWNER = 'team:shop', TAGS = 'domain=shop', "
        "FRESHNESS = '5 seconds') AS\nSELECT\n"
    )
    assert found.inputs == ("largest", "customers")
    assert found.pipeline == "python_views"
    said = Ownership.read(found.options)
    assert (said.owners, said.tags, said.freshness_seconds) == (("team:shop",), {"domain": "shop"}, 5.0)
    assert said.description == "Countries whose customers order much.\n\nA view over another one."
    assert said.origin is not None
    assert said.origin.startswith('@view(name="countries"')
    assert "much.join(customers" in said.origin


def test_the_same_in_sql_is_the_same_view(lake: strandline.Lake) -> None:
    """No meaning of its own: its statement, given by hand, changes no row."""
    lake.apply(VIEWS["largest"])
    (said,) = Interpreter(lake.settings).run(stored(lake, "largest").sql)
    assert "replaced" in str(said)  # of the ownership: the statement has no description
    assert not Ownership.read(stored(lake, "largest").options).description
    (said,) = Interpreter(lake.settings).run(stored(lake, "largest").sql)
    assert "unchanged" in str(said)


def test_a_plan_changes_nothing_and_apply_leaves_what_is_there(lake: strandline.Lake) -> None:
    @view(name="sold")
    def first(orders: Any) -> Any:
        return orders.group_by("product").agg(n=_.count())

    @view(name="sold")
    def second(orders: Any) -> Any:
        return orders.group_by("product").agg(n=_.count(), total=_.amount.sum())

    assert str(lake.plan(module(first))).splitlines()[:2] == [
        "pipeline 'reports':",
        "  create    materialized view 'sold'; reads 0 rows of 'orders'",
    ]
    assert "sold" not in lake.names()
    assert "created" in str(lake.apply(module(first)))
    assert "unchanged" in str(lake.plan(module(first)))
    assert "unchanged" in str(lake.apply(module(first)))
    plan = lake.plan(module(second))
    assert plan.replaces == ("materialized view 'sold'",)
    assert "+total DECIMAL(20, 2)" in str(plan)
    assert "replaced" in str(lake.apply(module(second)))
    assert [column.name for column in stored(lake, "sold").columns] == ["product", "n", "total"]


def test_what_is_gone_from_the_module_is_named_and_kept(lake: strandline.Lake) -> None:
    lake.apply(module(VIEWS["totals"], VIEWS["largest"]))
    assert "'largest' is not in the file and is kept" in str(lake.apply(module(VIEWS["totals"])))
    assert "kept" in str(lake.plan(module(VIEWS["totals"])))
    assert "largest" not in str(lake.apply(VIEWS["totals"], pipeline="reports"))


def test_a_module_is_applied_as_a_whole_or_not_at_all(lake: strandline.Lake) -> None:
    @view
    def broken(largest: Any) -> Any:
        return largest.select("nope")

    with pytest.raises(InvalidQuery) as found:
        lake.apply(module(broken, VIEWS["largest"]))
    assert "the function of 'broken' fails: IbisTypeError" in str(found.value) or "AttributeError" in str(found.value)
    assert "largest" not in lake.names()


def test_a_view_by_its_renamed_input(lake: strandline.Lake) -> None:
    list(Interpreter(lake.settings).run("ALTER TABLE orders RENAME TO sales"))

    @view
    def sold(sales: Any) -> Any:
        return sales.group_by("product").agg(n=_.count())

    lake.apply(sold)
    assert stored(lake, "sold").inputs == ("orders",)


def test_a_plain_view_is_read_too(lake: strandline.Lake) -> None:
    list(Interpreter(lake.settings).run("CREATE VIEW cheap AS SELECT order_id, product FROM orders WHERE amount < 10"))

    @view
    def sold(cheap: Any) -> Any:
        return cheap.group_by("product").agg(n=_.count())

    lake.apply(sold)
    assert stored(lake, "sold").inputs == ("orders",)


# --- refusals -------------------------------------------------------------------------------------------------------


def _any(*args: Any) -> Any:
    return args


def _fails(orders: Any) -> Any:
    raise ValueError("no such luck")


@ibis.udf.scalar.python  # type: ignore[untyped-decorator]
def _twice(text: str) -> str:
    return text + text


@pytest.mark.parametrize(
    ("refused", "error", "said"),
    [
        (view(name="v")(lambda order: order), UnknownName, "did you mean 'orders'?"),
        (view(name="v")(_any), InvalidQuery, "the parameter 'args' names no stream"),
        (view(name="v")(_fails), InvalidQuery, "the function of 'v' fails: ValueError: no such luck"),
        (view(name="v")(lambda orders: orders.amount.sum()), InvalidQuery, "returns a DecimalScalar, not a table"),
        (view(name="v")(lambda orders: orders.product.soundex().name("x").as_table()), InvalidQuery, "soundex"),
        (view(name="v")(lambda orders: orders.agg(x=_.amount.kurtosis())), NotSupported, "the operation Kurtosis"),
        (
            view(name="v")(lambda orders: orders.select(x=_twice(orders.product))),
            NotSupported,
            "'_twice' is a function",
        ),
        (view(name="v")(lambda orders: orders.select(x=orders.product.substr(-1))), NotSupported, "at least 0"),
        (view(name="v")(lambda orders: orders.select(x=ibis.random())), NotSupported, "the operation RandomScalar"),
        (view(name="v", colour="red")(lambda orders: orders), OptionRefused, "COLOUR is not an option of a view"),
        (view(name="v", state="half")(lambda orders: orders), OptionRefused, "'half' is no value of STATE"),
        (view(name="v", description=" ")(lambda orders: orders), OptionRefused, "DESCRIPTION is empty"),
        (
            view(name="v", key=["product"])(lambda orders: orders.select("order_id", "product")),
            InvalidQuery,
            "the rows of 'v' are not told apart by (product), but by (order_id)",
        ),
        (view(name="v", key=["ordr_id"])(lambda orders: orders), UnknownName, "did you mean 'order_id'?"),
        (
            view(name="v", key=["product"])(lambda orders: orders.select("product")),
            InvalidQuery,
            "not told apart by (product), but by what is not among its columns",
        ),
    ],
)
def test_what_cannot_be_a_view_is_a_typed_error(
    refused: PythonView, error: type[SqlError], said: str, lake: strandline.Lake
) -> None:
    with pytest.raises(error) as found:
        lake.apply(refused)
    assert said in str(found.value)
    assert refused.where in str(found.value)
    assert "v" not in lake.names()


def test_modules_that_make_no_order_are_refused(lake: strandline.Lake) -> None:
    one, two = view(name="one")(lambda two: two), view(name="two")(lambda one: one)
    with pytest.raises(InvalidQuery, match="'one' reads itself, by way of 'one' and 'two'"):
        lake.apply(module(one, two))
    with pytest.raises(InvalidQuery, match="two views of 'reports' are named 'one'"):
        lake.apply(module(one, view(name="one")(lambda orders: orders)))
    with pytest.raises(InvalidQuery, match="the module 'reports' has no view"):
        lake.apply(module())


def test_without_ibis_the_hint_says_what_to_install(lake: strandline.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "strandline.jobs.sql.from_ibis", None)
    monkeypatch.delattr("strandline.jobs.sql.from_ibis")
    with pytest.raises(SettingsError, match="strandline\\[views\\]"):
        lake.apply(VIEWS["largest"])
