"""The clock in queries: NOW(), CURRENT_DATE and their like.

In a pull query they are the moment at which the query was read, the same one in all its parts. A view gives the same
rows of the same tables whenever it is computed, so there they are the time that the lake's clock has, a table:

    CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE');
    SELECT … WHERE at > NOW() - INTERVAL '1' DAY
    SELECT … WHERE at > (SELECT MAX(now) FROM clock) - INTERVAL '1' DAY

The run of its pipeline writes the time there (`jobs.ingest.produce`). A tick is an event as any other: the version of
the clock's table is in the vector of each commit, and a row leaves a view in the epoch of a tick.

A column, or a name that the query gives, hides the words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import TICK, Source
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.pulled import Unnamed
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import call, identifier

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _instant(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


_MOMENTS: Final[Mapping[str, tuple[SqlType, Callable[[dt.datetime], str]]]] = {
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "GETDATE"), (t.TIMESTAMP, _instant)),
    **dict.fromkeys(("TRANSACTION_TIMESTAMP", "STATEMENT_TIMESTAMP", "CLOCK_TIMESTAMP"), (t.TIMESTAMP, _instant)),
    # Materialize's; Oracle's, Spark's and MySQL's: in UTC, as all of them.
    **dict.fromkeys(("MZ_NOW", "SYSTIMESTAMP", "GETUTCDATE", "UTC_TIMESTAMP"), (t.TIMESTAMP, _instant)),
    **dict.fromkeys(("CURRENT_DATE", "TODAY", "CURDATE"), (t.DATE, lambda moment: moment.strftime("%Y-%m-%d"))),
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), (t.TIME, lambda moment: moment.strftime("%H:%M:%S"))),
    "UNIX_TIMESTAMP": (t.BIGINT, lambda moment: str((moment - _EPOCH) // dt.timedelta(milliseconds=1))),
    "UNIX_DATE": (t.INT, lambda moment: str((moment - _EPOCH).days)),
}
"""{name: type and text of the moment}."""
_OF_VALUES: Final = {"UNIX_TIMESTAMP": "timestamp", "UNIX_DATE": "date"}
"""Those that with an argument are functions of it, as in ksqlDB, and the type of that."""
_WORDS: Final = ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME")
"""Those that stand without brackets."""
NEEDED: Final = "CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE')"
"""What a lake needs for NOW() in a view."""
E = TypeVar("E", bound=exp.Expr)


def with_moment(tree: E, columns: Collection[str], moment: dt.datetime, unnamed: Unnamed) -> E:
    """Replace the functions of the clock in a pull query by a moment in UTC, in place.

    Args:
        columns: names of the relations' columns.
    """

    def made(name: str, node: exp.Expr) -> exp.Expr:
        sql_type, text = _MOMENTS[name]
        found: exp.Expr = exp.Cast(this=exp.Literal.string(text(moment)), to=data_type(sql_type))
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions" and unnamed == "postgres":
            found = exp.Alias(this=found, alias=identifier(name.lower()))
        return found

    return _replaced(tree, columns, made)


def with_ticks(tree: E, columns: Collection[str], catalog: Catalog, *, rows_change: bool) -> E:
    """Replace the functions of the clock in the query of a view by the time that the lake's clock has, in place.

    Args:
        columns: names of the relations' columns.
        rows_change: False for a query whose rows must stay, as those of CREATE STREAM.

    Raises:
        InvalidQuery: the lake has no clock.
        NotSupported: the rows of the query must stay; or the function is one of the time of the day.
    """

    def made(name: str, node: exp.Expr) -> exp.Expr:
        line, place = position_of(node)
        if name in _OF_VALUES and (source is None or not rows_change):
            return node  # refused where its arguments are read
        if not rows_change:
            raise NotSupported(
                f"{name} in CREATE STREAM or TABLE is not supported: rows leave by the clock",
                line=line,
                column=place,
                hint="CREATE MATERIALIZED VIEW … AS, or rowtime, the time of the event",
            )
        if source is None:
            raise InvalidQuery(
                f"{name} gives another value each time, and a view gives the same rows of the same tables each time",
                line=line,
                column=place,
                hint=f"rowtime is the time of the event; for the time that passes: {NEEDED}",
            )
        sql_type, _ = _MOMENTS[name]
        if sql_type.base is BaseType.TIME:
            hint = "NOW(), CURRENT_DATE"
            raise NotSupported(f"{name} in a view is not supported", line=line, column=place, hint=hint)
        now = exp.Column(this=identifier(time_column(source)))
        table = exp.Table(this=identifier(source.name))
        latest = exp.Subquery(this=exp.Select(expressions=[call("MAX", now)], from_=exp.From(this=table)))
        if name in _OF_VALUES:
            return call(name, exp.Cast(this=latest, to=exp.DataType.build(_OF_VALUES[name])))
        return latest if sql_type.base is BaseType.TIMESTAMP else exp.Cast(this=latest, to=data_type(sql_type))

    source = clock_of(catalog)
    return _replaced(tree, columns, made)


def asks(tree: exp.Expr) -> bool:
    """True if a word of the clock is somewhere in a tree."""
    return any(node.name.upper() in _MOMENTS for node in tree.find_all(exp.Anonymous, exp.Column))


def clock_of(catalog: Catalog) -> Source | None:
    """The table that holds the time; None in a lake without one."""
    sources = (each for each in catalog.definitions() if isinstance(each, Source))
    return next((each for each in sources if TICK in each.options), None)


def time_column(clock: Source) -> str:
    """The column of the clock's table that holds the time."""
    return next(each.name for each in clock.columns if each.type.base is BaseType.TIMESTAMP)


def _replaced(tree: E, columns: Collection[str], made: Callable[[str, exp.Expr], exp.Expr]) -> E:
    hidden = {*columns, *(node.alias for node in tree.find_all(exp.Alias, exp.TableAlias) if node.alias)}
    hidden |= {each.name for node in tree.find_all(exp.TableAlias) for each in node.columns}
    for node in list(tree.find_all(exp.Anonymous, exp.Column)):
        name = _asked(node, hidden)
        if name is not None:
            found = made(name, node)
            if found is not node:
                found.meta.update(node.meta)
                node.replace(found)
    return tree


def _asked(node: exp.Expr, hidden: Collection[str]) -> str | None:
    """The name of the function that a node is; None for any other node."""
    name = node.name.upper()
    if name not in _MOMENTS:
        return None
    if isinstance(node, exp.Column):
        return name if not node.table and name in _WORDS and name.lower() not in hidden else None
    if name in _OF_VALUES and node.expressions:
        return None
    return name if all(isinstance(each, exp.Literal) for each in node.expressions) else None
