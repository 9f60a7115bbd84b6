"""Binding on DuckDB: DuckDB resolves every name and type of a text over empty tables, and runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.errors import NotBound

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.ivm.binding.texts import BoundText, Columns


def bind(connection: duckdb.DuckDBPyConnection, texts: Iterable[BoundText], functions: Library) -> None:
    """Bind the texts on a connection whose temporary tables nobody else reads.

    Raises:
        NotBound: a name, function or type of a text is not there.
    """
    import duckdb

    # What DuckDB finds wrong with the values of constants is a fault of rows, which the view's ERRORS decides on.
    faults = (
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ParserException,
        duckdb.SyntaxException,
        duckdb.NotImplementedException,
    )
    engine = engine_of("duckdb")
    there: dict[str, Columns] = {}
    for each in texts:
        for name, columns in each.relations.items():
            quoted = engine.name(name)
            if there.get(name) != columns and (quoted in each.text or name in each.text):
                listed = ", ".join(f"{engine.name(column)} {engine.type(of)}" for column, of in columns)
                connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted} ({listed})")
                there[name] = columns
        functions.declare_duckdb(connection, each.text)
        try:
            connection.sql(each.text)
        except faults as error:
            raise NotBound.by("DuckDB", each.what, str(error)) from error
        except duckdb.Error:
            continue
