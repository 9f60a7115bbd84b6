"""The oracle: what a table must hold, computed by another engine.

A projection at an epoch equals its own SELECT, run by DuckDB over its inputs at the version vector in its commit. The
inputs that are projections themselves are checked the same way, so by induction everything equals its SQL over the
event logs. None of the engine's rules or accumulators is used here: the functions have plain DuckDB equivalents.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from jobs.sql.catalog import Catalog
from jobs.sql.dialect import parse_select
from jobs.sql.functions import lower
from jobs.sql.model import InsertQuery, Source, View
from state_store import reader
from state_store.layout import Lake, event_log_of

_ORDER = "(_stream_time, _partition, _offset)"


def visible(lake: Lake, table: str, columns: list[str], version: int | None = None) -> Counter[tuple[Any, ...]]:
    """The rows of a table as a multiset of comparable tuples."""
    rows = reader.read_rows(lake.table(table), version=version, columns=columns)
    return multiset(_table(rows), columns)


def multiset(rows: pa.Table, columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_comparable(row[c]) for c in columns) for row in rows.to_pylist())


def expected(lake: Lake, catalog: Catalog, name: str) -> Counter[tuple[Any, ...]]:
    """What the projection or keyed table `name` must hold at the vector of its last commit."""
    definition = catalog.get(name)
    columns = [c.name for c in definition.columns]
    head = reader.head(lake.table(name))
    assert head is not None, f"{name} has no commit"
    vector = _flat(lake, head.record.vector)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        if isinstance(definition, Source):
            return multiset(_newest(db, lake, definition, vector), columns)
        assert isinstance(definition, View)
        result = _select(db, lake, definition.query, definition.inputs, vector, columns)
        for query in catalog.pipeline(definition.pipeline):
            if isinstance(query, InsertQuery) and query.target == name:
                own = {i: vector[f"{query.name}/{i}"] for i in query.inputs}
                result += _select(db, lake, query.query, query.inputs, own, columns)
        return result


def _flat(lake: Lake, vector: dict[str, int]) -> dict[str, int]:
    """The vector over the view's own inputs: an inner stage stands for what it reads (at rest: its head's vector)."""
    flat: dict[str, int] = {}
    for name, version in vector.items():
        if "__stage_" in name:
            head = reader.head(lake.table(name))
            assert head is not None
            flat |= _flat(lake, head.record.vector)
        else:
            flat[name] = version
    return flat


def _select(
    db: duckdb.DuckDBPyConnection,
    lake: Lake,
    query: str,
    inputs: tuple[str, ...],
    vector: dict[str, int],
    columns: list[str],
) -> Counter[tuple[Any, ...]]:
    for name in inputs:
        rows = _table(reader.read_rows(lake.table(name), version=vector[name]))
        db.execute(f'DROP VIEW IF EXISTS "{name}"')
        db.register(name, rows)
    tree = parse_select(query).transform(_plain)
    rows = db.sql(lower(tree, "duckdb")).to_arrow_table()
    return multiset(rows.rename_columns(columns), columns)


def _newest(db: duckdb.DuckDBPyConnection, lake: Lake, source: Source, vector: dict[str, int]) -> pa.Table:
    log = event_log_of(source.name)
    db.register("log", _table(reader.read_rows(lake.table(log), version=vector[log])))
    keys = ", ".join(f'"{k}"' for k in source.key)
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY _stream_time DESC, _partition DESC, _offset DESC)"
    return db.sql(f"SELECT * FROM log QUALIFY {newest} = 1").filter("NOT _tombstone").to_arrow_table()


def _plain(node: exp.Expression) -> exp.Expression:
    """Our aggregate functions in DuckDB's own words."""
    if not isinstance(node, exp.Anonymous):
        return node
    args = node.expressions
    value = args[0].sql("duckdb") if args else ""
    flags = [a for a in args[1:] if isinstance(a, exp.Boolean)]
    skip = "" if flags and not flags[0].this else f" FILTER (WHERE {value} IS NOT NULL)"
    count = next((a for a in args[1:] if isinstance(a, exp.Literal)), None)
    match node.name.upper():
        case "LATEST_BY_OFFSET" | "EARLIEST_BY_OFFSET" as name:
            latest = name.startswith("L")
            if count is not None:
                listed = f"list({value} ORDER BY _stream_time, _partition, _offset){skip}"
                text = f"{listed}[{f'-{count}:' if latest else f':{count}'}]"
            else:
                # arg_max leaves NULL values out, so they travel in a struct.
                text = f"{'arg_max' if latest else 'arg_min'}({{'v': {value}}}, {_ORDER}){skip}.v"
        case "COLLECT_LIST":
            text = f"list({value} ORDER BY _stream_time, _partition, _offset)"
        case "HISTOGRAM":
            text = f"histogram({value})"
        case "STDDEV_SAMPLE":
            text = f"stddev_samp({value})"
        case _:
            return node
    return exp.maybe_parse(text, dialect="duckdb")


def _table(rows: pa.Table | pa.RecordBatchReader) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else rows.read_all()


def _comparable(value: Any) -> Any:
    """Doubles at nine digits (sums add up in any order); lists, maps and structs as tuples."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, dict):
        return tuple(sorted((k, _comparable(v)) for k, v in value.items()))
    if isinstance(value, list):
        pairs = [v for v in value if isinstance(v, tuple)]
        items = [tuple(_comparable(x) for x in v) if isinstance(v, tuple) else _comparable(v) for v in value]
        return tuple(sorted(items)) if pairs and len(pairs) == len(value) else tuple(items)
    return value
