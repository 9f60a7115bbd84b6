"""Values of any type in a form that both engines compare alike.

Spark puts a NULL inside a struct or array before every value, DuckDB after; Spark compares no maps, DuckDB compares
their entries in the order in which they happen to be. The comparable form says first whether there is a value, and
lists a map's entries by key:

    1                                 (TRUE, 1)
    NULL                              (FALSE, NULL)
    STRUCT(a := 1, b := MAP('k':=2))  (TRUE, ((TRUE, 1), (TRUE, [('k', (TRUE, 2))])))

Forms of one type are equal exactly when the values are; they sort NULL first, texts and bytes byte by byte, NaN last.
"""

from __future__ import annotations

from strandline.jobs.engines.engine import Engine
from strandline.jobs.model.types import BaseType, SqlType, struct


def comparable(engine: Engine, value: str, sql_type: SqlType) -> str:
    """The comparable form of a value that may be NULL. `value` is repeated in it: give it a name first."""
    return _nullable(engine, value, sql_type, 0)


def _nullable(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    return engine.struct([("p", f"({value}) IS NOT NULL"), ("v", _present(engine, value, sql_type, depth))])


def _present(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    # Lambdas stand inside each other: their names differ by depth.
    item = f"__c{depth}"
    match sql_type.base:
        case BaseType.ARRAY:
            return engine.transform(value, item, _nullable(engine, item, sql_type.args[0], depth + 1))
        case BaseType.STRUCT:
            fields = [
                (f"f{place}", _nullable(engine, engine.field(value, name), inner, depth))
                for place, (name, inner) in enumerate(sql_type.fields)
            ]
            return engine.struct(fields)
        case BaseType.MAP:
            return _entries(engine, value, sql_type, depth)
        case _:
            return value


def _entries(engine: Engine, value: str, sql_type: SqlType, depth: int) -> str:
    entry = f"__c{depth}"
    key, inner = sql_type.args
    by_key = engine.sort_by(
        engine.entries(value),
        entry,
        _nullable(engine, engine.field(entry, "key"), key, depth + 1),
        struct(("key", key), ("value", inner)),
    )
    parts = [
        ("k", _nullable(engine, engine.field(entry, "key"), key, depth + 1)),
        ("v", _nullable(engine, engine.field(entry, "value"), inner, depth + 1)),
    ]
    return engine.transform(by_key, entry, engine.struct(parts))
