"""The check of a view's dead letters: the rows that fail and why, computed again from the inputs at the table's vector.

The rule of the dead letters has no accumulators: over all rows it is one SELECT, whose conditions are those by which
`recompute` leaves the same rows out of the view.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import engine_of, listed
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW, guarded
from strandline.jobs.ivm.rules.delta_join import all_rows
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.model.types import BaseType
from strandline.jobs.operate.verify.difference import difference
from strandline.jobs.operate.verify.findings import counted, failed, passed, skipped
from strandline.jobs.operate.verify.inputs import BegunLater, InputUnreadable, check_begun, input_rows, versions
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.model.definitions import Source, View
    from strandline.jobs.model.stage import MapStage
    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.opened import Opened
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.layout import LakeLayout

# The JSON of other types is spelled by the engine that wrote the row.
_SPELLED_ALIKE = (BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR, BaseType.BOOLEAN)


def check_dead_letters(table: Opened, catalog: Catalog, lake: LakeLayout, functions: Library) -> Outcome:
    """The rows kept aside are those of the inputs that fail, each with its reason.

    Args:
        table: of the dead letters of a view, or of one of its stages.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    definition = table.subject.definition
    assert definition is not None
    try:
        found = _stage_of(table.subject.table, definition, catalog)
    except StrandlineError as error:
        return skipped(f"its view has no plan: {error.message}")
    if found is None:
        return skipped("its view keeps no rows aside any more")
    item, prefix, stage = found
    if any(each.frozen for each in inputs_of(stage)):
        return skipped("an event joins a table as it was when the event came: its versions do not tell that")
    try:
        computed = _computed(stage, prefix, table, lake, functions)
    except (BegunLater, InputUnreadable) as error:
        return skipped(str(error))
    except StrandlineError as error:
        return skipped(f"its conditions do not run over its inputs: {error.message}")
    stored = reader.read_rows(table.path, table.version, [REASON, ROW])
    names = _names(stage)
    wrong = difference(_plain(stored, names), _plain(computed, names))
    if wrong:
        return failed(sentence("the rows are not those of '{}' that fail at its vector: {}", Name(item.name), wrong))
    return passed(f"{counted(stored.num_rows, 'row')}, those that fail at its vector")


def _stage_of(letters: str, definition: Source | View, catalog: Catalog) -> tuple[RefreshUnit, str, MapStage] | None:
    """What maintains a table of dead letters, and what stands before the entries in its vector; None: nothing does."""
    definitions = [definition, *catalog.insert_queries(definition.name)]
    for item in (item for level in maintained(definitions, catalog) for item in level):
        for stage in item.stages:
            if item.letters(stage) == letters and item.options.errors != "null":
                aside = guarded(stage, letters).aside
                return None if aside is None else (item, item.owner(stage).entry(""), aside)
    return None


def _computed(stage: MapStage, prefix: str, table: Opened, lake: LakeLayout, functions: Library) -> pa.Table:
    """The rows that fail, and why.

    Raises:
        BegunLater, InputUnreadable: an input does not have the rows any more.
        SqlError: the text does not run.
    """
    relations = {each.relation.name: each.relation for each in inputs_of(stage)}
    entries = {name: table.record.vector.get(f"{prefix}{name}") for name in relations}
    vector = {name: commit for name, commit in entries.items() if commit is not None}
    at = versions(vector, relations, lake)
    check_begun({name: table.record.since.get(f"{prefix}{name}", 0) for name in vector}, vector, at, lake)
    engine = engine_of("duckdb")
    rows, texts = {}, []
    for number, (name, relation) in enumerate(relations.items()):
        visible = [column for column, _ in relation.columns]
        rows[f"__input_{number}"] = input_rows(name, at[name], lake, visible, state=bool(relation.hidden))
        listed_columns = ", ".join(listed(relation, engine))
        aliases = {each.alias for each in inputs_of(stage) if each.relation.name == name}
        texts += [
            f"{engine.name(f'new_{alias}')} AS (SELECT {listed_columns} FROM __input_{number})" for alias in aliases
        ]
    names = ", ".join(engine.name(name) for name in (REASON, ROW))
    with QueryEngine(functions) as duck:
        return duck.query(f"WITH {', '.join(texts)} SELECT {names} FROM ({all_rows(stage.body, engine)})", rows)


def _names(stage: MapStage) -> set[str]:
    """The names in a row's JSON whose values both engines spell alike."""
    return {
        f"{each.alias}_{name}"
        for each in inputs_of(stage)
        for name, sql_type in each.relation.columns
        if sql_type.base in _SPELLED_ALIKE
    }


def _plain(rows: pa.Table, names: set[str]) -> pa.Table:
    """The rows with those values of their JSON, in one spelling."""
    import pyarrow as pa

    texts = pa.array(list(_texts(rows, names)), pa.string())
    return rows.set_column(rows.column_names.index(ROW), ROW, texts)


def _texts(rows: pa.Table, names: set[str]) -> Iterator[str]:
    for text in rows[ROW].to_pylist():
        yield json.dumps({name: value for name, value in sorted(json.loads(text).items()) if name in names})
