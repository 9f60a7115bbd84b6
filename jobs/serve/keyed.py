"""SELECTs of whole keys, as plans that a replica answers without an engine: columns, constants and comparisons alone.

    SELECT town, visits FROM by_town WHERE town = 'Rome' AND visits > 3
    key       town = 'Rome'        what is read of the replica
    checks    visits > 3           on each row that is found

A plan is made of a shape (`jobs.serve.shape`), so it serves all texts that differ in their constants only. It means
what the query means: it is read by the same front end, and what is not wholly understood has no plan.
"""

from __future__ import annotations

import datetime as dt
import operator
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from strandline.jobs.catalog.stored_names import as_stored
from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.query.logical import Block
from strandline.jobs.serve.catalogued import check_stored, readable_named
from strandline.jobs.serve.pull import only_relation, row_by_row
from strandline.jobs.serve.shape import FEW_DIGITS
from strandline.jobs.sql.from_text import type_of
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.jobs.sql.trees import conjuncts
from strandline.state_store.errors import StrandlineError
from strandline.state_store.replicas.row_bytes import KeyRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.lookup import KeyValues
    from strandline.jobs.serve.shape import Constants, Shape
    from strandline.state_store.replicas.state import ReplicaReading, Row

MOST_KEYS: Final = 1000
"""Of one query: they are read in some milliseconds."""
MOST_OF_PREFIX: Final = 64
"""Rows of a query that gives the first columns of a key: the windows of a town. They are read in a millisecond."""

_BITS: Final = {BaseType.INT: 31, BaseType.BIGINT: 63}
_KINDS: Final = {
    **dict.fromkeys((BaseType.INT, BaseType.BIGINT), "iI"),
    **dict.fromkeys((BaseType.DOUBLE, BaseType.DECIMAL), "i"),
    BaseType.VARCHAR: "sdt",
    BaseType.DATE: "d",
    BaseType.TIMESTAMP: "t",
}
"""{type of a column: the kinds of constants (`Constants.kind`) that are compared with it as they are}. A DOUBLE holds
whole numbers of few digits exactly."""
_KEYS: Final = frozenset(
    (BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR, BaseType.BOOLEAN, BaseType.DATE, BaseType.TIMESTAMP)
)
"""Types of key columns of which equal values have one form."""
_COMPARED: Final[Mapping[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_MIRRORED: Final[Mapping[type[exp.Expr], type[exp.Expr]]] = {
    **{exp.EQ: exp.EQ, exp.NEQ: exp.NEQ},
    **{exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE},
}
_READ_AS: Final = {BaseType.DATE: "DATE_TEXT", BaseType.TIMESTAMP: "INSTANT_TEXT"}
"""{type: the function that the front end has put around a text which is compared with it}."""


class NotByKey(Exception):
    """A text has no answer by its plan: a constant that its column cannot hold, a value that Python compares
    otherwise. Whoever answers any SELECT answers it."""


@dataclass(frozen=True)
class Operand:
    """What a column is compared with.

    Attributes:
        place: among the constants of a shape; −1: `value` itself.
        type: of the column.
    """

    place: int
    type: SqlType
    value: bool | None = None

    def values(self, constants: Sequence[Constants]) -> list[Any]:
        """The values in this place, as rows hold them. Raises NotByKey."""
        if self.place < 0:
            return [self.value]
        return [_of_type(value, self.type) for value in constants[self.place].values]


@dataclass(frozen=True)
class ColumnCheck:
    """A condition on one column of a row.

    Attributes:
        compare: of `_COMPARED`; `IN`, `NOT IN`; `NULL`, `NOT NULL`, which take no operand.
    """

    column: str
    compare: type[exp.Expr] | str
    operand: Operand | None = None

    def bound(self, constants: Sequence[Constants]) -> Callable[[Row], bool]:
        """The condition with its constants. Raises NotByKey."""
        column = self.column
        if self.operand is None:
            wanted = self.compare == "NULL"
            return lambda row: (row[column] is None) is wanted
        values = self.operand.values(constants)
        if isinstance(self.compare, str):
            inside, of_list = self.compare == "IN", frozenset(values)
            return lambda row: row[column] is not None and (_plain(row[column]) in of_list) is inside
        (value,), compare = values, _COMPARED[self.compare]
        return lambda row: row[column] is not None and bool(compare(_plain(row[column]), value))


@dataclass(frozen=True)
class KeyedPlan:
    """How the texts of one shape are answered.

    Attributes:
        names, types: of the columns of the answer.
        columns: of the relation, one for each of those.
        key: what the columns of the relation's key are equal to: all of them, or the first ones.
        limit: LIMIT, or the place of its number among the constants; None without one.
    """

    relation: Relation
    names: tuple[str, ...]
    types: tuple[SqlType, ...]
    columns: tuple[str, ...]
    key: tuple[Operand, ...]
    checks: tuple[ColumnCheck, ...]
    limit: Operand | None

    @property
    def whole(self) -> bool:
        """True if it asks for whole keys."""
        return len(self.key) == len(self.relation.key)

    def keys(self, constants: Sequence[Constants]) -> list[KeyValues]:
        """The keys whose rows are wanted, each once, in their order.

        Raises:
            NotByKey: a constant is none of its column, or there are more than `MOST_KEYS`.
        """
        parts = [sorted(set(operand.values(constants))) for operand in self.key]
        if len(parts) == 1 and len(parts[0]) == 1:
            return [(parts[0][0],)]
        found = list(islice(product(*parts), MOST_KEYS + 1))
        if len(found) > MOST_KEYS:
            raise NotByKey
        return found

    def begun(self, reading: ReplicaReading, constants: Sequence[Constants]) -> list[Row]:
        """The rows that the query shows, of those whose key begins with its columns.

        Raises:
            NotByKey: as of `keys` and `shown`, or there are more than `MOST_OF_PREFIX`.
        """
        ranges = (reading.range(KeyRange.of_prefix(*key), MOST_OF_PREFIX + 1) for key in self.keys(constants))
        found = list(islice((row for each in ranges for row in each), MOST_OF_PREFIX + 1))
        if len(found) > MOST_OF_PREFIX:
            raise NotByKey
        found.sort(key=lambda row: [(row[name] is None, row[name]) for name in self.relation.key])
        return self.shown(found, constants)

    def shown(self, rows: Sequence[Row | None], constants: Sequence[Constants]) -> list[Row]:
        """Those of the rows, as a replica has them, that the query shows.

        Raises:
            NotByKey: a value is compared otherwise here than there.
        """
        checks = [check.bound(constants) for check in self.checks]
        try:
            found = [row for row in rows if row is not None and all(check(row) for check in checks)]
        except TypeError:
            raise NotByKey from None  # an instant that Python has not, as text
        return found if self.limit is None else found[: self.limit.values(constants)[0]]


def keyed_plan(shape: Shape, catalog: Catalog, unnamed: Unnamed) -> KeyedPlan | None:
    """The plan of a shape; None where its texts do not ask for keys of one table that is stored.

    Args:
        unnamed: as of `read_pull`.
    """
    try:
        statements = parse(shape.text)
        if len(statements) != 1 or not isinstance(statements[0], Select) or statements[0].emit is not None:
            return None
        statement = as_stored(statements[0], catalog)
        pull = read_pull(statement.query, catalog, unnamed)
        check_stored([relation.name for relation in pull.relations], catalog)
        return _Planning(shape).plan(pull, statement.limit, catalog)
    except (StrandlineError, NotByKey):
        return None  # whoever answers it says what is wrong with it


class _Planning:
    """The marks of one shape, and which of them have been met in its tree."""

    def __init__(self, shape: Shape) -> None:
        self._kinds = {mark: each.kind for mark, each in zip(shape.marks, shape.constants, strict=True)}
        self._places = {mark: place for place, mark in enumerate(shape.marks)}
        self._met: set[int] = set()

    def plan(self, pull: PullQuery, limit: int | None, catalog: Catalog) -> KeyedPlan:
        """The plan. Raises NotByKey."""
        block, read = pull.query, only_relation(pull)
        if read is None or not isinstance(block, Block) or not row_by_row(pull):
            raise NotByKey
        relation = readable_named(read.name, catalog)
        outputs = [each.expression for each in block.outputs]
        columns = tuple(each.name for each in outputs if isinstance(each, exp.Column))
        visible = {name for name, _ in relation.columns}
        checks = [check for node in conjuncts(block.where) for check in self._checks(node, relation)]
        if relation.storage != "keyed" or len(columns) < len(outputs) or not visible.issuperset(columns):
            raise NotByKey
        key: list[Operand] = []
        for name in relation.key:
            equal = next((each for each in checks if each.column == name and each.compare in (exp.EQ, "IN")), None)
            if equal is None or equal.operand is None or relation.type_of(name).base not in _KEYS:
                break
            checks.remove(equal)
            key.append(equal.operand)
        counted = None if limit is None else self._marked(str(limit), t.BIGINT)
        if not key or len(self._met) < len(self._places):
            raise NotByKey
        names, types = zip(*pull.outputs, strict=True)
        return KeyedPlan(relation, names, types, columns, tuple(key), tuple(checks), counted)

    def _checks(self, node: exp.Expr, relation: Relation) -> Iterator[ColumnCheck]:
        node, negated = node.unnest(), False
        if isinstance(node, exp.Not):
            node, negated = node.this.unnest(), True
        column = node.this
        if type(node) in _MIRRORED and not isinstance(column, exp.Column):
            node = _MIRRORED[type(node)](this=node.expression, expression=column)
            column = node.this
        if not isinstance(column, exp.Column) or column.name not in {name for name, _ in relation.columns}:
            raise NotByKey
        name, sql_type = column.name, relation.type_of(column.name)
        match node:
            case exp.Is() if isinstance(node.expression, exp.Null):
                yield ColumnCheck(name, "NOT NULL" if negated else "NULL")
            case exp.In() if len(node.expressions) == 1 and not node.args.get("query"):
                yield ColumnCheck(name, "NOT IN" if negated else "IN", self._operand(node.expressions[0], sql_type))
            case exp.Between() if not negated:
                yield ColumnCheck(name, exp.GTE, self._operand(node.args["low"], sql_type))
                yield ColumnCheck(name, exp.LTE, self._operand(node.args["high"], sql_type))
            case exp.EQ() if negated:
                yield ColumnCheck(name, exp.NEQ, self._operand(node.expression, sql_type))
            case exp.Binary() if type(node) in _COMPARED and not negated:
                yield ColumnCheck(name, type(node), self._operand(node.expression, sql_type))
            case _:
                raise NotByKey

    def _operand(self, node: exp.Expr, sql_type: SqlType) -> Operand:
        """The constant that a node of the tree is, as the column's type. Raises NotByKey."""
        node = node.unnest()
        if isinstance(node, exp.Boolean) and sql_type.base is BaseType.BOOLEAN:
            return Operand(-1, sql_type, bool(node.this))
        if isinstance(node, exp.Cast):  # TRY_CAST is one too
            to = type_of(node.to)
            wide = to.base is BaseType.DECIMAL and to.precision - to.scale > FEW_DIGITS
            if to.base is not sql_type.base or (to.base is BaseType.DECIMAL and not wide):
                raise NotByKey
            node = node.this.unnest()
            if isinstance(node, exp.Anonymous) and node.name == _READ_AS.get(sql_type.base):
                (node,) = node.expressions
        if not isinstance(node, exp.Literal):
            raise NotByKey
        return self._marked(node.name, sql_type)

    def _marked(self, mark: str, sql_type: SqlType) -> Operand:
        place = self._places.get(mark)
        if place is None or self._kinds[mark] not in _KINDS.get(sql_type.base, ""):
            raise NotByKey
        self._met.add(place)
        return Operand(place, sql_type)


def _of_type(value: int | str, sql_type: SqlType) -> Any:
    """A constant as rows hold values of its column. Raises NotByKey."""
    match sql_type.base:
        case BaseType.INT | BaseType.BIGINT:
            assert isinstance(value, int)
            most = 1 << _BITS[sql_type.base]
            if not -most <= value < most:
                raise NotByKey
            return value
        case BaseType.DATE:
            return dt.date.fromisoformat(str(value))
        case BaseType.TIMESTAMP:
            return dt.datetime.fromisoformat(str(value)).replace(tzinfo=dt.UTC)
        case _:
            return value


def _plain(value: Any) -> Any:
    """A value that Python compares as SQL does. Raises NotByKey."""
    if value != value:
        raise NotByKey
    return value
