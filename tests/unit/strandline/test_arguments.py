"""Arguments of a wrong kind, as a notebook gives them: each is an error of the project's tree, with a hint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import strandline
from strandline.state_store.errors import ArgumentRefused
from strandline.views import view

FILE = Path(__file__).parents[3] / "jobs" / "pipelines" / "package_locations.sql"
OPEN: Any = strandline.open_lake
VIEW: Any = view


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> strandline.Lake:
    found = strandline.open_lake(tmp_path_factory.mktemp("lake"))
    found.apply(FILE)
    return found


_SPOILED: tuple[tuple[Callable[[Any], object], str], ...] = (
    (lambda lake: lake.apply(3), "what should be definitions is of Python's type int\n  hint: give a .sql file"),
    (lambda lake: lake.apply(None), "what should be definitions is None"),
    (lambda lake: lake.apply(["shop.sql"]), "Python's type list"),
    (lambda lake: lake.apply(lambda orders: orders), "a function with @view before it"),
    (lambda lake: lake.apply("missing file.sql"), "there is no file 'missing file.sql'\n  hint: name a .sql file"),
    (lambda lake: lake.apply(""), "'.' is a folder"),
    (lambda lake: lake.apply("CREATE TABLE t (id INT);"), "lake.execute(…) takes statements"),
    (lambda lake: lake.apply("CREATE TABLE t (id INT)\n" * 100), "lake.execute(…) takes statements"),
    (lambda lake: lake.apply("a" * 300), "its name is none that a file has"),
    (lambda lake: lake.apply(VIEW(lambda orders: orders), pipeline=3), "the name of a pipeline is of"),
    (lambda lake: lake.plan(3), "what should be definitions"),
    (lambda lake: lake.plan("missing.sql"), "there is no file 'missing.sql'"),
    (lambda lake: lake.statement(len), "a function with @view before it"),
    (lambda lake: lake.drain(None), "the name of a pipeline is None\n  hint: write it as text: 'shop'"),
    (lambda lake: lake.drain(Path("a/shop.sql")), "hint: write 'shop'"),
    (lambda lake: lake.drain("shop", "local"), "the session is of Python's type str"),
    (lambda lake: lake.query(None), "the text of a statement is None"),
    (lambda lake: lake.query_arrow(b"SELECT 1"), "Python's type bytes"),
    (lambda lake: lake.columns(3), "the text of a statement"),
    (lambda lake: lake.execute(None), "the text of a statement is None"),
    (lambda lake: lake.execute("CREATE TABLE t (id INT)", pipeline=3), "the name of a pipeline"),
    (lambda lake: lake.arrow(None), "the name of a stream, table or view is None"),
    (lambda lake: lake.describe(3), "the name of a stream, table or view"),
    (lambda lake: lake.version(b"v"), "the name of a stream, table or view"),
    (lambda lake: lake.insert(None, []), "the name of a stream, table or view"),
    (lambda lake: lake.insert("package_checkins", None), "what should be rows is None"),
    (lambda lake: lake.insert("package_checkins", {"id": 1}), "write a list of rows"),
    (lambda lake: lake.insert("package_checkins", [(1, 2)]), "a row is of Python's type tuple"),
    (lambda lake: lake.insert("package_checkins", [{1: 2}]), "the name of a column in a row"),
    (lambda lake: lake.insert("package_checkins", pa.table({"id": [1]})), "hint: write rows.to_pylist()"),
    (lambda lake: lake.insert("package_checkins", pd.DataFrame()), "hint: write rows.to_dict('records')"),
    (lambda lake: lake.arrow("package_locations", "package_id"), "write a list of columns: ['"),
    (lambda lake: lake.arrow("package_locations", 3), "the choice of columns"),
    (lambda lake: lake.pandas("package_locations", [3]), "the name of a column"),
    (lambda lake: lake.arrow("package_locations", version="1"), "a version is of Python's type str"),
    (lambda lake: lake.changes("package_locations", after="0"), "lake.version('package_locations')"),
    (lambda lake: lake.arrow("package_locations", where=["x"]), "`where` is of Python's type list"),
    (lambda lake: lake.arrow("package_locations", where={"package_id": 1}), "what `where` says of 'package_id'"),
    (lambda lake: lake.arrow("package_locations", where={"package_id": ["a"]}), "a value of 'package_id' (BIGINT)"),
    (lambda lake: lake.spark("package_locations", None), "the session is None"),
    (lambda lake: OPEN(3), "the path of a lake is of Python's type int"),
    (lambda lake: OPEN("a", lake="b"), "the path of a lake is said twice"),
    (lambda lake: VIEW(3), "what should be a view"),
    (lambda lake: VIEW(partial(print, 3)), "what should be a view"),
    (lambda lake: VIEW(key="id"), "the key of a view is of Python's type str\n  hint: write a list of columns"),
    (lambda lake: VIEW(name=3), "the name of a view"),
)
"""Calls with what they do not take; mypy would refuse each, a notebook does not."""


@pytest.mark.parametrize(("call", "said"), _SPOILED)
def test_an_argument_of_the_wrong_kind_is_a_typed_error(
    call: Callable[[Any], object], said: str, opened: strandline.Lake
) -> None:
    before = opened.names()
    with pytest.raises(ArgumentRefused) as found:
        call(opened)
    assert said in str(found.value)
    assert isinstance(found.value, TypeError)
    assert found.value.hint
    assert opened.names() == before
