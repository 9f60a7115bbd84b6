"""A scenario: some sources, views over them, and a history; how it is made, run and printed.

An example is one view with one history: a scenario of eight views is eight examples.
"""

from __future__ import annotations

import pprint
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.session.define.analyze import define
from strandline.jobs.sql.statements import CreateView, parse_one
from tests.properties.expressions import Name
from tests.properties.histories import Batch, history
from tests.properties.picker import Picker
from tests.properties.queries import Queries
from tests.properties.query_parts import Known
from tests.properties.sources import Schema, schemas
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.memory_catalog import MemoryCatalog

# So often a query is drawn anew when the front end refuses it; then the scenario has a view less.
_TRIES = 4


@dataclass
class Tally:
    """What was drawn, over many scenarios.

    Attributes:
        forms: views by the rule of the grammar that made them.
        refused: views that the front end or the planner does not support, by its message.
    """

    scenarios: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def examples(self) -> int:
        return self.forms.total()

    def __str__(self) -> str:
        forms = ", ".join(f"{form} {count}" for form, count in self.forms.most_common())
        refused = "".join(f"\n  refused {count:4}: {message}" for message, count in self.refused.most_common())
        return f"{self.examples} examples (a view and its history) in {self.scenarios} scenarios: {forms}{refused}"


@dataclass(frozen=True)
class Scenario:
    """Statements in order, and the events of each epoch by event log.

    Attributes:
        catalog: what the statements define; None: they are still to be read.
    """

    statements: tuple[str, ...]
    history: tuple[Batch, ...]
    catalog: Catalog | None = None

    def defined(self) -> Catalog:
        """A catalog that holds what the statements define."""
        if self.catalog is not None:
            return self.catalog
        catalog = MemoryCatalog()
        for statement in self.statements:
            run(statement, catalog)
        return catalog

    def __str__(self) -> str:
        """As it can be pasted into a test: `Scenario(…).check(db)`."""
        statements = ",\n        ".join(f'"""{statement}"""' for statement in self.statements)
        batches = pprint.pformat(self.history, width=200, sort_dicts=False)
        return f"Scenario(\n    (\n        {statements},\n    ),\n    {batches},\n)"

    def check(self, db: duckdb.DuckDBPyConnection) -> None:
        """Run it: after every epoch every view and keyed source must be what its own SELECT gives.

        Raises:
            AssertionError: a table is not what it must be.
        """
        catalog = self.defined()
        lake = DuckLake(catalog, catalog.definitions(), db)
        try:
            for epoch, batch in enumerate(self.history):
                for log, rows in batch.items():
                    lake.feed(log, rows)
                lake.refresh()
                for name in tables(catalog):
                    wrong = lake.wrong(name)
                    assert not wrong, f"epoch {epoch}: {wrong}"
        finally:
            lake.close()


def scenario(pick: Picker, views: int, tally: Tally, *, catalog: Catalog | None = None, **of_history: Any) -> Scenario:
    """A random scenario with up to that many views; some read others.

    Args:
        catalog: where everything is defined; None: in memory.
        of_history: as `history` takes them.
    """
    sources = schemas(pick)
    catalog = catalog if catalog is not None else MemoryCatalog()
    statements = [source.statement for source in sources]
    for statement in statements:
        run(statement, catalog)
    known = [_source(each) for each in sources]
    for number in range(views):
        view = _view(pick, known, catalog, f"v{number}", tally)
        if view is not None:
            statements.append(view)
            if pick.chance(40):
                known.append(_known(catalog, f"v{number}"))
    tally.scenarios += 1
    return Scenario(tuple(statements), tuple(history(pick, sources, **of_history)), catalog)


def tables(catalog: Catalog) -> list[str]:
    """What is maintained: views and keyed sources."""
    return [
        each.name
        for each in catalog.definitions()
        if not isinstance(each, InsertQuery) and (isinstance(each, View) or each.kind == "table")
    ]


def _view(pick: Picker, known: Sequence[Known], catalog: Catalog, name: str, tally: Tally) -> str | None:
    """The statement of a new view, which is in the catalog then; None when every try was refused."""
    for _ in range(_TRIES):
        made = Queries(pick, known).any()
        options = _options(pick, made.form)
        text = f"CREATE {made.create} {name}{options} AS {made.text};"
        statement = parse_one(text)
        assert isinstance(statement, CreateView)
        try:
            definition = define(statement, catalog, "tests")
            assert isinstance(definition, View)
            plan(definition, catalog)
        except NotSupported as error:
            tally.refused[error.message] += 1
            continue
        except Exception as error:
            error.add_note("\n".join([*(each.sql for each in catalog.definitions()), text]))
            raise
        catalog.add(definition)
        tally.forms[made.form] += 1
        return text
    return None


def _options(pick: Picker, form: str) -> str:
    """The WITH clause: inner stages shared with other views, or ksqlDB's meaning of groups, now and then."""
    options = ["STATE='shared'"] if pick.chance(20) else []
    options += ["SEMANTICS='ksql'"] if form in ("aggregate", "windowed") and pick.chance(20) else []
    return f" WITH ({', '.join(options)})" if options else ""


def _source(schema: Schema) -> Known:
    key = (schema.columns[0][0],) if schema.kind == "table" else ()
    return Known(schema.name, tuple(Name(*column) for column in schema.columns), schema.kind == "stream", True, key)


def _known(catalog: Catalog, name: str) -> Known:
    definition = catalog.get(name)
    assert isinstance(definition, Source | View)
    columns = tuple(Name(column.name, str(column.type)) for column in definition.columns)
    return Known(name, columns, definition.kind == "stream", source=False, key=definition.key)
