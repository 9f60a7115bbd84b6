"""Tables as they were, `FROM t VERSION AS OF 12`, and the changes between versions, `FROM table_changes('t', 3, 7)`.

    SELECT … FROM t VERSION AS OF 12 JOIN t ON …      SELECT … FROM `t@12` AS t JOIN t ON …
    t@12   the relation t, read at version 12           the table now: at the newest cut, as ever

The rest of the query is read as any other. What is not kept any more is told with the versions that are.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Never

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.tables import Relation
from strandline.jobs.serve.catalogued import CHANGES, changes_call, check_stored, readable_named
from strandline.jobs.serve.consistent_snapshot import reflected
from strandline.jobs.serve.errors import VersionNotKept
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.trees import identifier
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import StoreError, TableMissing, VersionGone
from strandline.state_store.paths import file_size
from strandline.state_store.tablespec import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.serve.consistent_snapshot import Reflected
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

CHANGE_TYPE: Final = "_change_type"
_CHANGE_COLUMNS: Final = ((CHANGE_TYPE, t.VARCHAR), ("_commit_version", t.BIGINT), ("_commit_timestamp", t.TIMESTAMP))
"""Behind the columns of the table, as Delta's `table_changes` has them."""
_AS_OF: Final = "AS OF"


@dataclass(frozen=True)
class Past:
    """A table as it was, or its changes.

    Attributes:
        table: whose it is.
        relation: under a name of its own.
        version: that is read; of changes the last one.
        first: of changes, the first version whose changes they are; None: the rows.
    """

    table: str
    relation: Relation
    version: int
    first: int | None = None

    def reflected(self, lake: LakeLayout) -> Reflected:
        """What the version reflects. Raises VersionNotKept."""
        try:
            return reflected(lake, self.table, self.version)
        except VersionGone:
            return not_kept(lake.table(self.table), self.table, self.version)

    def changes(self, lake: LakeLayout, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The changes, as rows.

        Raises:
            VersionNotKept: those of a version are not kept.
        """
        assert self.first is not None
        path = lake.table(self.table)
        try:
            found = reader.read_changes(path, self.first - 1, self.version)
            # Of rows that another key told apart nobody can say which took the place of which.
            key = self.relation.key if _have_newest_key(path, max(self.first - 1, 0), self.version) else ()
        except VersionGone:
            not_kept(path, self.table, self.first)
        yield from _with_types(found, key).select(list(columns)).to_batches()


def with_past(query: exp.Query, catalog: Catalog, lake: LakeLayout) -> tuple[exp.Query, dict[str, Past]]:
    """A query with names of their own for tables as they were, and what those names stand for.

    Args:
        query: over the names that are stored.

    Raises:
        InvalidQuery: a version is no constant.
        NotSupported: nothing is stored of a table.
        VersionNotKept: a version is not kept, or does not exist yet.
    """
    made = query.copy()
    found: dict[str, Past] = {}
    for table in list(made.find_all(exp.Table)):
        call = changes_call(table)
        version = table.args.get("version")
        if call is not None:
            past = _changes(table, call, catalog, lake)
        elif version is not None and _is_constant(version):
            past = _at(table, version, catalog, lake)
        else:
            continue
        found[past.relation.name] = past
        said = table.name if call is None else call.expressions[0].name
        alias = table.args.get("alias") or exp.TableAlias(this=identifier(said))
        table.replace(exp.Table(this=exp.Identifier(this=past.relation.name, quoted=True), alias=alias))
    return made, found


def _is_constant(version: exp.Version) -> bool:
    """True for what a query reads; a column, as of a stream's event, belongs to a join."""
    return version.args.get("kind") == _AS_OF and version.expression.find(exp.Column) is None


def _at(table: exp.Table, version: exp.Version, catalog: Catalog, lake: LakeLayout) -> Past:
    relation = _stored(table.name, catalog)
    path = lake.table(relation.name)
    number = _version(version.expression, path, relation.name, of_time=version.name == "TIMESTAMP")
    kept = set(_names(path, relation.name, number))
    gone = next((name for name, _ in relation.columns if name not in kept), None)
    if gone is not None:
        raise VersionNotKept(
            f"version {number} of '{relation.name}' has no column '{gone}': another definition made it",
            hint=f"it has {', '.join(sorted(kept))}; read a version of the present definition",
        )
    key = relation.key if _have_newest_key(path, number) else ()
    return Past(relation.name, replace(relation, name=f"{relation.name}@{number}", key=key), number)


def _changes(table: exp.Table, call: exp.Anonymous, catalog: Catalog, lake: LakeLayout) -> Past:
    line, place = position_of(table)
    if not 2 <= len(call.expressions) <= 3:
        raise InvalidQuery(
            f"{CHANGES} takes a table, the first version and the last one",
            line=line,
            column=place,
            hint=f"{CHANGES}('by_town', 3, 7); without the last one, up to the newest",
        )
    relation = _stored(catalog.name_map.stored(call.expressions[0].name), catalog)
    path = lake.table(relation.name)
    first, *rest = call.expressions[1:]
    newest = log.newest_version(path)
    last = _version(rest[0], path, relation.name) if rest else (-1 if newest is None else newest)
    begin = _first_version(first, path, relation.name)
    if begin > last:
        raise InvalidQuery(
            f"the first version, {begin}, is behind the last one, {last}", line=line, column=place, hint="swap them"
        )
    columns = tuple(each for each in relation.columns if each[0] in _names(path, relation.name, last))
    made = Relation(f"{relation.name}@{begin}..{last}", (*columns, *_CHANGE_COLUMNS), "keyed", key=relation.key)
    return Past(relation.name, made, last, begin)


def _stored(name: str, catalog: Catalog) -> Relation:
    relation = readable_named(name, catalog)
    check_stored([relation.name], catalog)
    return relation


def _first_version(node: exp.Expr, path: LakePath, table: str) -> int:
    """The first version of changes; of a time, the first that was committed then or later."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return _version(node, path, table)
    return _version_of_time(_milliseconds(node) - 1, path, table, before=True) + 1


def _version(node: exp.Expr, path: LakePath, table: str, *, of_time: bool | None = None) -> int:
    """The version that a constant names; of a time, the newest that was committed until then.

    Raises:
        InvalidQuery: it is no version, and no time.
        VersionNotKept: there is none.
    """
    number = isinstance(node, exp.Literal) and node.is_int
    if not number:
        if of_time is False:
            raise InvalidQuery(f"a version is a whole number, not {node.sql()}", hint="VERSION AS OF 12")
        return _version_of_time(_milliseconds(node), path, table)
    if of_time:
        raise InvalidQuery(f"a time is a text, not {node.sql()}", hint="TIMESTAMP AS OF '2024-05-01T12:00:00'")
    version, newest = int(node.name), log.newest_version(path)
    if newest is None:
        raise VersionNotKept(f"'{table}' has no versions yet", hint="has its pipeline run? See `strandline status`")
    if version > newest:
        raise VersionNotKept(f"'{table}' has no version {version} yet: the newest is {newest}", hint="read that")
    return version


def _milliseconds(node: exp.Expr) -> int:
    """The time that a constant names, since the epoch."""
    text = node.this if isinstance(node, exp.Cast) else node
    try:
        if not isinstance(text, exp.Literal) or not text.is_string:
            raise ValueError
        moment = dt.datetime.fromisoformat(text.name.strip())
    except ValueError as error:
        hint = "write '2024-05-01', '2024-05-01T12:00:00' (UTC) or '2024-05-01T12:00:00+02:00'"
        raise InvalidQuery(f"{node.sql()} is no time", hint=hint) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def _version_of_time(milliseconds: int, path: LakePath, table: str, *, before: bool = False) -> int:
    """The newest version that was committed until a time; −1 where `before` and all came after it."""
    if milliseconds > log.now_ms():
        raise VersionNotKept(f"the versions of '{table}' at a time to come are not known", hint="leave AS OF out")
    newest = log.newest_version(path)
    for version in range(-1 if newest is None else newest, -1, -1):
        try:
            if log.read_commit(path, version).timestamp <= milliseconds:
                return version
        except VersionGone:
            break
    if before and newest is not None and 0 in log.versions(path):
        return -1
    return not_kept(path, table, None)


def _names(path: LakePath, table: str, version: int) -> list[str]:
    """The columns that a version has. Raises VersionNotKept."""
    try:
        return list(reader.schema(path, version).names)
    except (VersionGone, TableMissing):
        return not_kept(path, table, version)


def not_kept(path: LakePath, table: str, version: int | None) -> Never:
    """Raise the error of a version that is not kept; None: of a time before all that are.

    Raises:
        VersionNotKept: always, with the versions that are kept.
    """
    newest = log.newest_version(path)
    kept = [] if newest is None else [each for each in log.versions(path) if each <= newest]
    # What is removed is what is older: the first that is kept has all others behind it.
    kept = kept[bisect_left(kept, True, key=lambda each: _is_kept(path, each)) :]
    span = "nothing of it is kept"
    if kept:
        since = ""
        with suppress(StoreError):
            moment = dt.datetime.fromtimestamp(log.read_commit(path, kept[0]).timestamp / 1000, dt.UTC)
            since = f", since {moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        span = f"versions {kept[0]} to {kept[-1]} are{since}"
    if version is None and kept and kept[0] == 0:
        what = f"'{table}' was not there yet"
    else:
        named = f"what '{table}' was then" if version is None else f"version {version} of '{table}'"
        what = f"{named} is not kept any more"
    raise VersionNotKept(f"{what}: {span}", hint="read one of these")


def _have_newest_key(path: LakePath, *versions: int) -> bool:
    """True if the rows of these versions are told apart as those of the newest one are. Raises VersionGone."""
    last = reader.newest_key(path)
    return last is None or all(reader.record_at(path, each, ours=False).rekeyed == last for each in versions)


def _is_kept(path: LakePath, version: int) -> bool:
    """True if the log and the files of a version are there."""
    try:
        for name in read_snapshot(path, version).files:
            file_size(log.inside(path, name))
    except (StoreError, OSError):
        return False
    return True


def _with_types(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Changes with Delta's words for them, a row for each weight."""
    import pyarrow as pa

    weights: list[int] = changes.column(WEIGHT).to_pylist()
    versions: list[int] = changes.column("_commit_version").to_pylist()
    values = zip(*(changes.column(name).to_pylist() for name in key), strict=True) if key else ((),) * len(weights)
    keys = [str(each) for each in values]
    signs: dict[tuple[int, str], set[bool]] = {}
    for version, name, weight in zip(versions, keys, weights, strict=True):
        signs.setdefault((version, name), set()).add(weight > 0)

    def word(version: int, name: str, weight: int) -> str:
        if key and len(signs[version, name]) == 2:
            return "update_postimage" if weight > 0 else "update_preimage"
        return "insert" if weight > 0 else "delete"

    words: list[Any] = list(map(word, versions, keys, weights))
    made = changes.drop_columns([WEIGHT]).append_column(CHANGE_TYPE, pa.array(words, pa.string()))
    places = [place for place, weight in enumerate(weights) for _ in range(abs(weight))]
    return made.take(pa.array(places, pa.int64()))
