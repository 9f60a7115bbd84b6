"""Binding for Spark without a JVM: a text is parsed in Spark's grammar, and each of its columns is found.

sqlglot knows where a name can come from: relations, subqueries, common table expressions. It does not know Spark's
functions; which of them a text calls, `jobs.functions` alone says, and their tests run on Spark. That Spark itself
binds the texts of all views that come with the project, `tests/spark/test_binding.py` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import OptimizeError, ParseError, SchemaError, TokenError
from sqlglot.optimizer.qualify import qualify

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.errors import NotBound

if TYPE_CHECKING:
    from strandline.jobs.ivm.binding.texts import BoundText


def bind(text: BoundText) -> None:
    """Bind a text.

    Raises:
        NotBound: a text is not of Spark's grammar, or a column of it is not there.
    """
    engine = engine_of("spark")
    schema: dict[str, object] = {
        name: {column: engine.type(sql_type) for column, sql_type in columns}
        for name, columns in text.relations.items()
    }
    try:
        tree = sqlglot.parse_one(text.text, dialect="spark")
        qualify(tree, schema=schema, dialect="spark", isolate_tables=False, identify=False, quote_identifiers=False)
    except (OptimizeError, ParseError, SchemaError, TokenError) as error:
        raise NotBound.by("Spark", text.what, str(error)) from error
