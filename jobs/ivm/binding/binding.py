"""The check of CREATE, ALTER and INSERT INTO … SELECT before anything is stored: both engines can bind the rules.

    definition ──plan──> stages ──ERRORS──> forms ──rules──> texts ──┬─> DuckDB binds them over empty tables
                                                                     └─> sqlglot binds them for Spark

A rule that an engine cannot bind is a fault of Strandline. It is found here, with the statement at hand, and not by the
first refresh that needs it, when the view is there and others read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.functions.python.register import Library
from strandline.jobs.ivm.binding import kernel, spark
from strandline.jobs.ivm.binding.texts import changes_of, forms_of, other_texts, recomputation, stages_of

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.state_store.duckdb.engine import DuckDBEngine

_MEMORY = "64MB"
"""Nothing is run, so this is more than enough."""


class Binding:
    """Binds definitions on one DuckDB engine, which it starts when it is first asked.

    A file's statements are checked before they are executed and again when they are: what was bound is not bound twice.
    """

    def __init__(self) -> None:
        self._duckdb_engine: DuckDBEngine | None = None
        self._bound: list[Definition] = []

    def check(self, definition: Definition, catalog: Catalog) -> None:
        """Bind all texts of a definition, which need not be in the catalog; what it reads is.

        Raises:
            NotBound: an engine cannot bind a text.
            ConditionLost: a text would lack a condition of the query.
            NotSupported: an engine has no rule for a stage.
        """
        if definition in self._bound:
            return
        forms = [forms_of(definition, stage) for stage in stages_of(definition, catalog)]
        texts = [changes_of(form, "duckdb") for each in forms for form in each]
        texts += [text for first, *_ in forms for text in other_texts(first, "duckdb")]
        texts += recomputation(definition, catalog)
        if texts:
            functions = Library(catalog.functions.values(), ())
            with self._started().connection() as connection:
                kernel.bind(connection, texts, functions)
        for first, *_ in forms:
            # Binding by sqlglot is slow: the text with the most parts, of the form that is run first, stands for all.
            spark.bind(changes_of(first, "spark"))
        self._bound.append(definition)

    def _started(self) -> DuckDBEngine:
        if self._duckdb_engine is None:
            from strandline.state_store.duckdb.engine import DuckDBEngine

            self._duckdb_engine = DuckDBEngine(_MEMORY, 1)
        return self._duckdb_engine
